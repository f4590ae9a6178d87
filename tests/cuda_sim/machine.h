// The simulated driver's state: devices, their memory and their streams; for its own sources.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "tests/cuda_sim/block.h"

// One piece of work of a stream. With `other` it waits: it is done once `other` has done `ticket`.
struct StreamWork {
  std::function<void()> run;
  CUstream_st* other = nullptr;
  uint64_t ticket = 0;
};

struct CUstream_st {
  std::deque<StreamWork> work;
  uint64_t submitted = 0, completed = 0;  // tickets, counted from 1
  int device = 0;

  [[nodiscard]] bool runnable() const {
    return !work.empty() &&
           (work.front().other == nullptr || work.front().other->completed >= work.front().ticket);
  }
};

struct CUevent_st {
  struct State {
    CUstream_st* stream = nullptr;  // of the last record
    uint64_t ticket = 0;
    bool timed = true;
    std::chrono::steady_clock::time_point time;

    [[nodiscard]] bool done() const { return stream == nullptr || stream->completed >= ticket; }
  };

  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace anabranch::cuda_sim {

struct Allocation {
  size_t size;
  int device;  // or kPinned
};

inline constexpr int kPinned = -1;

struct SimDevice {
  std::vector<CUstream_st*> streams;
  std::vector<std::unique_ptr<CUstream_st>> retired;  // destroyed; an event may still name them
  size_t allocated = 0;
  uint64_t steps = 0;  // pieces of work done, which vary the random choice
  std::string fault;
};

// As a process has one driver, it has one of these.
struct Machine {
  std::mutex lock;  // of the next two; not held while work runs
  std::map<const char*, Allocation> allocations;
  std::array<SimDevice, 64> devices;
};

Machine& machine();

// This host thread's current device, and the last error of a call.
struct ThreadState {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
};

ThreadState& thread_state();
SimDevice& current_device();

// What lies at an address, or near it, for a message.
std::string describe_address(const void* address);

// Whether [address, address + size) lies in one allocation of a device, or in pinned memory.
bool is_on_device(const void* address, size_t size);
bool is_pinned(const void* address, size_t size);

// Notes an error and returns it; the second also prints why.
cudaError_t note(cudaError_t error);
cudaError_t reject(cudaError_t error, const std::string& why);

// Stops the current device with a fault; cudaErrorLaunchFailure from then on.
cudaError_t report_fault(const std::string& message);
cudaError_t sticky_error();

cudaError_t submit(cudaStream_t stream, StreamWork work);
// Runs work, by the policy, until `stream` has done `ticket`; or all of every stream.
void run_until(CUstream_st* stream, uint64_t ticket);
void run_all();

}  // namespace anabranch::cuda_sim
