#include "launch/rank_process.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "core/base/parallel_for.h"
#include "launch/cuda_part.h"
#include "monitoring/gpu_sampler.h"
#include "parallel/comm/device_group.h"
#include "parallel/comm/nccl_environment.h"

namespace anabranch {
namespace {

// Enough for a starved machine or a slow disk.
constexpr auto kRankZeroFirst = std::chrono::seconds(5);

// When a rank is lost the others find out within moments of each other, and each is to write down
// where it was before the first of them ends the job.
constexpr auto kForTheOthers = std::chrono::seconds(2);
// The end of a job may hang too.
constexpr auto kLongestEnd = std::chrono::seconds(8);

[[noreturn]] void end_job(int rank, const std::string& what, Fault fault) {
  const auto code = static_cast<int>(fault);
  std::thread([code] {
    std::this_thread::sleep_for(kLongestEnd);
    _exit(code);
  }).detach();
  let_rank_zero_speak(rank);
  std::cerr << join("anabranch: error: rank ", rank, " on ", host_name(), ": ", what, "\n")
            << std::flush;
  if (fault == Fault::kPeer && rank == 0) std::this_thread::sleep_for(kForTheOthers);
  MpiWorld::abort(code);
}

// srun without a plugin that MPI speaks starts processes that know nothing of each other: each
// would be a job of one.
void refuse_strangers() {
  const char* tasks =
      std::getenv("SLURM_STEP_NUM_TASKS");  // of srun's own; a batch script has none
  if (tasks == nullptr || std::atoi(tasks) <= 1) return;
  const char* number = std::getenv("SLURM_PROCID");
  let_rank_zero_speak(number != nullptr ? std::atoi(number) : 0);
  throw config_error(
      "srun has started ", tasks,
      " processes that do not know of each other, as they have no MPI in common. Start "
      "them with srun --mpi=pmix (srun --mpi=list shows what there is), or with mpirun "
      "in the allocation.");
}

}  // namespace

void let_rank_zero_speak(int rank) {
  if (rank != 0) std::this_thread::sleep_for(kRankZeroFirst);
}

void run_alone(const std::function<void()>& body) {
  if (started_rank() != 0) return;
  if (started_ranks() > 1) {
    std::cerr << join("anabranch: note: one process does this: rank 0 of ", started_ranks(),
                      "; the others have ended\n");
  }
  body();
}

RankProcess::RankProcess(std::unique_ptr<Group> world) : world_(std::move(world)) {
  topology_ = find_topology(*world_);
  context_.rank = world_->rank();
  context_.size = world_->size();
  context_.pool = std::make_shared<Pool>();
  context_.threads = topology_.threads;
  context_.trace = &trace_;
  set_thread_count(context_.threads);
  world_->set_trace(&trace_);
}

void RankProcess::take_device(DeviceWish wish, const std::string& log_directory) {
  if (gpu_is_demanded() && wish.asked != DeviceChoice::kCuda) {
    wish.by = "ANABRANCH_DEVICE";
    wish.instead = "leave that out";
    if (wish.asked == DeviceChoice::kCpu) {
      throw config_error("ANABRANCH_DEVICE is cuda, and device is cpu: leave one of them out");
    }
    wish.asked = DeviceChoice::kCuda;
  }
  if (wish.asked != DeviceChoice::kCpu) sight_ = see_gpus_or_why();
  devices_ = choose_devices(wish, sight_, topology_, *world_);
  if (first()) {
    for (const std::string& warning : devices_.warnings) {
      std::cerr << join("anabranch: warning: ", warning, "\n");
    }
  }
  if (devices_.mine == context_.device) return;
  context_.device = devices_.mine;
  context_.pool = std::make_shared<Pool>(context_.device);
  if (world_->size() == 1) return;
  std::error_code ignored;  // where that fails, whoever needs the folder says so
  if (!log_directory.empty()) std::filesystem::create_directories(log_directory, ignored);
  const std::vector<NcclVariable> variables = set_nccl_environment(log_directory);
  if (first()) {
    std::string text;
    for (const NcclVariable& v : variables) {
      text += join(text.empty() ? ": " : ", ", v.name, "=", v.value, " (", v.origin, ")");
    }
    std::cerr << join("anabranch: NCCL ", nccl_version(), text, "\n");
  }
  world_ = device_group(std::move(world_), context_.device);
  world_->set_trace(&trace_);
}

void RankProcess::say_device() const {
  if (first()) std::cerr << join("device: ", devices_.text(), "\n");
}

void RankProcess::require(const MemoryNeed& need) const {
  require_memory(need, topology_.local_size, host_memory());
}

const Gpu& RankProcess::gpu() const {
  return sight_.gpus[static_cast<size_t>(context_.device.index)];
}

std::unique_ptr<GpuSampler> RankProcess::sample_gpu() const {
  return context_.device.is_cpu() ? nullptr : std::make_unique<GpuSampler>(gpu().pci);
}

double RankProcess::host_memory() const {
  if (context_.device.is_cpu()) return physical_memory();
  return static_cast<double>(gpu().memory) * topology_.local_size;
}

void RankProcess::open_log(const std::string& file) {
  log_ = std::make_unique<Log>(context_.rank, file, false);
  context_.log = log_.get();
}

int run_rank(const std::function<int(RankProcess&)>& body) {
  if (!started_by_mpi()) {
    refuse_strangers();
    RankProcess process(self_group());
    return body(process);
  }
  MpiWorld mpi;
  // Outlives the handlers: to unwind it would wait for collectives that others never join.
  std::optional<RankProcess> process;
  try {
    process.emplace(mpi.group());
    return body(*process);
  } catch (const Error& error) {
    end_job(mpi.rank(), error.what(), error.fault());
  } catch (const std::exception& error) {
    end_job(mpi.rank(), error.what(), Fault::kInternal);
  }
}

}  // namespace anabranch
