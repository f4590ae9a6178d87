// This process as a rank of a job: MPI if it was started by mpirun or srun, alone otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/log.h"
#include "core/base/trace.h"
#include "parallel/comm/mpi_world.h"
#include "parallel/rank_context.h"
#include "parallel/topology.h"
#include "runtime/device_choice.h"
#include "runtime/memory_need.h"

namespace anabranch {

class GpuSampler;

class RankProcess {
 public:
  // Collective. The rank gets its share of the host's cores.
  explicit RankProcess(std::unique_ptr<Group> world);

  [[nodiscard]] Group& world() { return *world_; }

  [[nodiscard]] RankContext& context() { return context_; }

  [[nodiscard]] const RankContext& context() const { return context_; }

  [[nodiscard]] const Topology& topology() const { return topology_; }

  [[nodiscard]] bool first() const { return context_.rank == 0; }

  // Collective: chooses where the ranks compute, of which rank 0 says what is amiss, and makes the
  // pool of this rank's tensors there. NCCL's warnings go to `log_directory`, which is made, or, if
  // it is empty, nowhere. A GPU that ANABRANCH_DEVICE demands is wished for. Throws Error (config,
  // 78).
  void take_device(DeviceWish wish, const std::string& log_directory = "");

  [[nodiscard]] const DevicePlan& devices() const { return devices_; }

  // Rank 0 says on the error stream where the ranks compute and why: for verbs that print no plan.
  void say_device() const;

  // Throws Error (config, 78) with the figures unless the ranks of this host, of which each needs
  // as much, fit where they compute.
  void require(const MemoryNeed& need) const;

  // Of this rank's GPU; null on the processor.
  [[nodiscard]] std::unique_ptr<GpuSampler> sample_gpu() const;

  // Bytes that the ranks of this host have for their tensors together.
  [[nodiscard]] double host_memory() const;

  // Logs to `file` from now on.
  void open_log(const std::string& file);

 private:
  [[nodiscard]] const Gpu& gpu() const;  // this rank's, if it has one

  std::unique_ptr<Group> world_;
  Topology topology_;
  GpuSight sight_;
  DevicePlan devices_;
  Trace trace_;
  std::unique_ptr<Log> log_;
  RankContext context_;
};

// Waits, on other ranks than the first: what all of them find wrong alike (a bad key, a missing
// file) rank 0 says and ends the job, and the others speak only if it does not.
void let_rank_zero_speak(int rank);

// Runs `body`, which is one process's work, on rank 0 only, which says so if there are others.
void run_alone(const std::function<void()>& body);

// Runs `body` as a rank. Under MPI, a rank that throws prints its message and ends the job with the
// error's exit code; what all ranks throw alike is printed once, by rank 0.
int run_rank(const std::function<int(RankProcess&)>& body);

}  // namespace anabranch
