// The simulated driver's state: devices, their memory and their streams; for its own sources.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "tests/cuda_sim/block.h"

namespace anabranch::cuda_sim {

// What several devices do together, each on a stream of its own; nccl.cpp.
class JointWork {
 public:
  JointWork() = default;
  virtual ~JointWork() = default;
  JointWork(const JointWork&) = delete;
  JointWork& operator=(const JointWork&) = delete;

  // The stream has come to it, and may ask again; true once it is done.
  virtual bool reach() = 0;

  // What has to get on before it can be done: a stream of another device, or null if the other's
  // host has not called yet.
  virtual CUstream_st* blocker() = 0;
};

}  // namespace anabranch::cuda_sim

// One piece of work of a stream. With `other` it waits: it is done once `other` has done `ticket`.
struct StreamWork {
  std::function<void()> run = {};
  CUstream_st* other = nullptr;
  uint64_t ticket = 0;
  std::shared_ptr<anabranch::cuda_sim::JointWork> joint = {};
  bool held = false;  // runs only where nothing else can
};

struct CUstream_st {
  std::deque<StreamWork> work;
  uint64_t submitted = 0, completed = 0;  // tickets, counted from 1
  int device = 0, number = 0;

  // The next piece of work as a test sees it.
  [[nodiscard]] anabranch::cuda_sim::Piece piece(const StreamWork& next) const {
    return {device, number, submitted, next.other != nullptr, next.joint != nullptr};
  }

  [[nodiscard]] bool held() const { return !work.empty() && work.front().held; }

  [[nodiscard]] bool runnable() const {
    if (work.empty()) return false;
    const StreamWork& next = work.front();
    if (next.joint) return next.joint->reach();
    return next.other == nullptr || next.other->completed >= next.ticket;
  }

  // What the next piece of work waits for.
  [[nodiscard]] CUstream_st* blocker() const {
    return work.front().joint ? work.front().joint->blocker() : work.front().other;
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
  uint64_t steps = 0;                          // pieces of work done, which vary the random choice
  std::map<const void*, size_t> shared_bytes;  // dynamic ones that kernels were allowed last
  std::string fault;
};

// As a process has one driver, it has one of these.
struct Machine {
  std::mutex turn;                // of all streams and events; held while work runs
  std::condition_variable moved;  // work was put on a stream, or done
  std::mutex lock;                // of the rest, taken after `turn`
  std::map<const char*, Allocation> allocations;
  std::array<SimDevice, 64> devices;
};

Machine& machine();

// Host threads take turns: one at a time has work put on streams, or makes it run.
using Turn = std::unique_lock<std::mutex>;
[[nodiscard]] Turn take_turn();

// This host thread's current device, and the last error of a call.
struct ThreadState {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
};

ThreadState& thread_state();
SimDevice& current_device();

// What lies at an address, or near it, for a message.
std::string describe_address(const void* address);

// Whether [address, address + size) lies in one allocation of a device, of device `device`, or in
// pinned memory.
bool is_on_device(const void* address, size_t size);
bool is_on(int device, const void* address, size_t size);
bool is_pinned(const void* address, size_t size);

// Notes an error and returns it; the second also prints why.
cudaError_t note(cudaError_t error);
cudaError_t reject(cudaError_t error, const std::string& why);

// Stops the current device with a fault; cudaErrorLaunchFailure from then on.
cudaError_t report_fault(const std::string& message);
cudaError_t sticky_error();
// The same of any device.
void stop_device(int device, const std::string& message);
bool is_stopped(int device);

cudaError_t submit(Turn& turn, cudaStream_t stream, StreamWork work);
// Puts it there whatever the current device and its faults.
void enqueue(CUstream_st* stream, StreamWork work);
// Runs work, by the policy, until `stream` has done `ticket`; or all of every stream of the current
// device. Where that takes the host of another device, it waits for it.
void run_until(Turn& turn, CUstream_st* stream, uint64_t ticket);
void run_all(Turn& turn);
// Runs one piece of work for the sake of `stream`, if there is one that can run.
void run_one(CUstream_st* stream);

}  // namespace anabranch::cuda_sim
