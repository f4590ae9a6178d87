// What a rank communicates from GPU to GPU: one stream for all its groups, as one thread runs their
// collectives of the CPU, and a thread that watches over it.
//
//   compute stream        ...writes x |        | waits for `end`, reads x...
//   communication stream              | waits, | begin, NCCL, end |
//
// The host blocks nowhere: it starts a collective, and Work::wait() makes the compute stream wait.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/comm/nccl_comm.h"
#include "parallel/comm/patience.h"

namespace anabranch::cuda {

class DeviceWork;

// Fails together with the communication thread: what fails one fails all that comes of the other.
class NcclQueue {
 public:
  NcclQueue(std::shared_ptr<CommThread> thread, int device);
  // All groups must be gone.
  ~NcclQueue();
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;

  // Collective: a communicator of the ranks of `host`.
  std::shared_ptr<NcclComm> connect(Group& host);

  // Puts a collective on the stream. `calls` are the calls of NCCL that make it.
  Work start(const Collective& c, NcclComm& comm,
             const std::function<void(ncclComm*, CUstream_st*)>& calls);

  // Returns when all that was started is done, or aborted.
  void drain();

  [[nodiscard]] Device device() const { return {Device::Kind::kCuda, device_}; }

 private:
  using Clock = std::chrono::steady_clock;

  // A collective that may still run.
  struct Pending {
    std::shared_ptr<DeviceWork> work;
    CollectiveKind kind;
    int64_t bytes;
    Clock::time_point started;
  };

  void watch();
  // Takes what is done from the pending, from any thread; lock held by `hold`.
  void reap(std::unique_lock<std::mutex>& hold);
  // When it began and ended, on the host's clock; lock held.
  std::pair<Clock::time_point, Clock::time_point> times_of(const Pending& ended);
  // Fails the rank if a communicator has failed, or the first pending one takes too long.
  void look(std::unique_lock<std::mutex>& hold);
  void give_up(std::unique_lock<std::mutex>& hold);
  // A call of the GPU's has failed: so does all communication.
  void gpu_failed(std::unique_lock<std::mutex>& hold, const Error& error);

  std::shared_ptr<CommThread> thread_;
  std::shared_ptr<CommState> state_;  // the thread's
  int device_;
  Stream stream_;
  std::vector<std::weak_ptr<NcclComm>> comms_;  // under state_->lock, as all below
  std::deque<Pending> pending_;
  bool stop_ = false;
  bool gave_up_ = false;
  std::shared_ptr<DeviceWork> last_;  // the last that is done, and when that was
  Clock::time_point last_end_;
  Patience patience_;  // with the first of the pending, since the stream has come to it
  std::shared_ptr<DeviceWork> patient_with_;
  std::thread watcher_;
};

}  // namespace anabranch::cuda
