// One of NCCL's communicators, as one rank has it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "core/tensor/tensor.h"
#include "parallel/comm/comm_thread.h"

struct ncclComm;

namespace anabranch::cuda {

// It does not block: whatever takes long is polled for, so that an abort and the deadline of
// `thread` end it. Its calls come from one thread; another may ask error() and cut_off().
class NcclComm {
 public:
  using Clock = std::chrono::steady_clock;

  // Less than a rank that has failed is given to come down (Watchdog::Options::grace).
  static constexpr std::chrono::seconds kLongestAbort{2};

  // What rank 0 makes and gives to all: a name of the communicator, on the CPU.
  static Tensor new_id();

  // Collective; for the calling thread's current device. Throws Error if NCCL refuses, or if not
  // all ranks come in time.
  NcclComm(std::shared_ptr<CommThread> thread, const Tensor& id, int rank, int size);
  // What it has under way must be done, or aborted.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Runs `calls`, which call NCCL, as one of its groups. Returns when they are on their streams.
  void run(const std::string& what, const std::function<void(ncclComm*)>& calls);

  // What has failed since; empty: nothing.
  [[nodiscard]] std::string error();
  // Ends what is under way undone. That may hang as what it ends does, so it goes on in a thread of
  // its own; false if it is not over by `until`: the GPU may still be at the rank's tensors.
  bool cut_off(Clock::time_point until = Clock::now() + kLongestAbort);

 private:
  void await(const std::string& what);  // till nothing is in progress
  void finish();

  std::shared_ptr<CommThread> thread_;
  std::mutex lock_;
  ncclComm* comm_ = nullptr;  // null: aborted
};

// Throws Error if `result`, an ncclResult_t, is a failure; what is in progress is none.
void check_nccl(int result, const std::string& what);

// "2.28.9"
[[nodiscard]] std::string nccl_version();

}  // namespace anabranch::cuda
