#include "parallel/comm/nccl_queue.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime.h>

#include "core/base/error.h"
#include "core/base/range.h"
#include "core/cuda/check.h"
#include "core/tensor/device_cuda.h"

namespace anabranch::cuda {
namespace {

constexpr std::chrono::milliseconds kTick{20};  // between two looks of the watcher

class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreate"); }

  ~Event() { cudaEventDestroy(event_); }

  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(CUstream_st* stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }

  [[nodiscard]] bool passed() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaErrorNotReady) check(state, "cudaEventQuery");
    return state == cudaSuccess;
  }

  void hold_up(CUstream_st* stream) const {
    check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }

  [[nodiscard]] double seconds_until(const Event& later) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

class DeviceWork final : public WorkState {
 public:
  DeviceWork(std::shared_ptr<CommState> comm, const Collective& c, int device)
      : text(c.text()), comm_(std::move(comm)), device_(device), tensors_{c.in, c.out} {}

  // Afterwards whoever uses the tensors' memory on their streams comes later: they need not be
  // held.
  void wait() override {
    std::vector<Tensor> done_with;
    const std::scoped_lock hold(comm_->lock);
    if (!passed_ && comm_->failure) throw Error(*comm_->failure);
    check(cudaSetDevice(device_), "cudaSetDevice");
    for (CUstream_st* stream : streams_of(tensors_)) {
      if (!waits_) came_.record(stream);
      waits_ = true;
      end.hold_up(stream);
    }
    done_with.swap(tensors_);
  }

  bool done() override {
    const std::scoped_lock hold(comm_->lock);
    return has_passed();
  }

  double seconds() override {
    const std::scoped_lock hold(comm_->lock);
    return has_passed() ? begin.seconds_until(end) : 0;
  }

  double held_up() override {
    const std::scoped_lock hold(comm_->lock);
    return has_passed() ? stall() : 0;
  }

  // How long the waiting stream stood still, once it is done. Lock held.
  [[nodiscard]] double stall() const {
    if (!waits_ || !came_.passed()) return 0;  // it has not even come there
    return std::max(0.0, came_.seconds_until(end));
  }

  // What runs after an abort has not been done. Lock held.
  bool has_passed() {
    if (!passed_ && !comm_->failure) passed_ = end.passed();
    return passed_;
  }

  // To be destroyed without the lock.
  [[nodiscard]] std::vector<Tensor> take_tensors() { return std::exchange(tensors_, {}); }

  static std::vector<CUstream_st*> streams_of(const std::vector<Tensor>& tensors) {
    std::vector<CUstream_st*> streams;
    for (const Tensor& t : tensors) {
      const bool there = std::find(streams.begin(), streams.end(), t.stream()) != streams.end();
      if (!there) streams.push_back(t.stream());
    }
    return streams;
  }

  const std::string text;
  Event begin, end;

 private:
  std::shared_ptr<CommState> comm_;
  int device_;
  std::vector<Tensor> tensors_;  // under comm_->lock, as all below
  Event came_;                   // the first stream that waits, to its wait
  bool waits_ = false;
  bool passed_ = false;
};

NcclQueue::NcclQueue(std::shared_ptr<CommThread> thread, int device)
    : thread_(std::move(thread)),
      state_(thread_->state()),
      device_(device),
      stream_(Device{Device::Kind::kCuda, device}) {
  watcher_ = std::thread([this] { watch(); });
}

NcclQueue::~NcclQueue() {
  drain();
  {
    const std::scoped_lock hold(state_->lock);
    stop_ = true;
  }
  state_->changed.notify_all();
  watcher_.join();
}

std::shared_ptr<NcclComm> NcclQueue::connect(Group& host) {
  const Tensor id =
      host.rank() == 0 ? NcclComm::new_id() : Tensor(NcclComm::new_id().shape(), DType::kU8);
  host.broadcast(id, 0).wait();
  check(cudaSetDevice(device_), "cudaSetDevice");
  auto comm = std::make_shared<NcclComm>(thread_, id, host.rank(), host.size());
  const std::scoped_lock hold(state_->lock);
  if (state_->failure) {
    comm->cut_off();
    throw Error(*state_->failure);
  }
  std::erase_if(comms_, [](const auto& c) { return c.expired(); });
  comms_.push_back(comm);
  return comm;
}

Work NcclQueue::start(const Collective& c, NcclComm& comm,
                      const std::function<void(ncclComm*, CUstream_st*)>& calls) {
  const Range range(name_of(c.kind));
  thread_->check();
  check(cudaSetDevice(device_), "cudaSetDevice");
  auto work = std::make_shared<DeviceWork>(state_, c, device_);
  for (CUstream_st* compute : DeviceWork::streams_of({c.in, c.out})) {
    wait_for(stream_.handle(), compute);
  }
  work->begin.record(stream_.handle());
  try {
    comm.run(work->text, [&](ncclComm* nccl) { calls(nccl, stream_.handle()); });
    work->end.record(stream_.handle());
  } catch (const Error& error) {
    thread_->fail(error);
    drain();  // its tensors may be in use until all is aborted
    throw;
  }
  thread_->note_start(work->text);
  const auto bytes = static_cast<int64_t>(std::max(c.in.bytes(), c.out.bytes()));
  {
    const std::scoped_lock hold(state_->lock);
    pending_.push_back({work, c.kind, bytes, Clock::now()});
  }
  state_->changed.notify_all();
  return Work(std::move(work));
}

void NcclQueue::drain() {
  std::unique_lock hold(state_->lock);
  while (true) {
    reap(hold);
    if (state_->failure ? gave_up_ : pending_.empty()) return;
    state_->changed.wait_for(hold, std::chrono::milliseconds(1));
  }
}

void NcclQueue::reap(std::unique_lock<std::mutex>& hold) {
  try {
    while (!pending_.empty() && pending_.front().work->has_passed()) {
      const Pending ended = std::move(pending_.front());
      pending_.pop_front();
      std::vector<Tensor> tensors = ended.work->take_tensors();
      const auto [begin, end] = times_of(ended);
      state_->blocked += ended.work->stall();
      hold.unlock();
      tensors.clear();
      thread_->note_end(ended.work->text, ended.kind, ended.bytes, begin, end);
      hold.lock();
    }
  } catch (const Error& error) {
    gpu_failed(hold, error);
  }
}

void NcclQueue::gpu_failed(std::unique_lock<std::mutex>& hold, const Error& error) {
  if (!hold.owns_lock()) hold.lock();
  if (!state_->failure) state_->failure = error;
}

// Times of a GPU become times of the host: the first end is now, what follows is as far from it as
// the GPU says, but after it was started and before now.
std::pair<NcclQueue::Clock::time_point, NcclQueue::Clock::time_point> NcclQueue::times_of(
    const Pending& ended) {
  const auto span = [](double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  const auto now = Clock::now();
  const auto took = span(ended.work->begin.seconds_until(ended.work->end));
  auto begin = last_ ? last_end_ + span(last_->end.seconds_until(ended.work->begin)) : now - took;
  begin = std::max(std::min(begin, now - took), ended.started);
  last_ = ended.work;
  last_end_ = begin + took;
  return {begin, last_end_};
}

void NcclQueue::watch() {
  cudaSetDevice(device_);
  std::unique_lock hold(state_->lock);
  while (!stop_) {
    if (gave_up_ || (pending_.empty() && !state_->failure)) {
      state_->changed.wait(hold);
      continue;
    }
    state_->changed.wait_for(hold, kTick, [&] { return stop_ || state_->failure.has_value(); });
    if (!state_->failure) reap(hold);
    try {
      if (!state_->failure) look(hold);
    } catch (const Error& error) {  // or nobody would hear of it
      gpu_failed(hold, error);
    }
    if (state_->failure) give_up(hold);
  }
}

void NcclQueue::look(std::unique_lock<std::mutex>& hold) {
  const std::vector<std::weak_ptr<NcclComm>> comms = comms_;
  hold.unlock();
  std::string error;
  for (const auto& weak : comms) {
    if (const auto comm = weak.lock(); comm && error.empty()) error = comm->error();
  }
  hold.lock();
  if (!error.empty() && !state_->failure) {
    const std::string what = pending_.empty() ? "GPU communication" : pending_.front().work->text;
    state_->failure = Error(Fault::kPeer, join(what, " on ", state_->who, ": ", error));
  }
  if (state_->failure || pending_.empty() || state_->deadline <= 0) return;
  // It waits for the compute stream first, which may be far behind: that is no peer's fault.
  const std::shared_ptr<DeviceWork> first = pending_.front().work;
  if (first != patient_with_ || !first->begin.passed()) patience_.reset();
  patient_with_ = first;
  if (patience_.tick() < state_->deadline) return;
  state_->failure = Error(
      Fault::kPeer, join(first->text, " on ", state_->who, " waited ", state_->deadline,
                         " s on the GPU for its peers: one is hung, or far behind; `ncclras` on "
                         "this host says which"));
}

// Aborts the communicators, which ends what is on the stream, and lets go of its tensors. If that
// hangs the stream never ends, and the tensors stay: whoever waits for us can still say what failed
// and end the process.
void NcclQueue::give_up(std::unique_lock<std::mutex>& hold) {
  const std::vector<std::weak_ptr<NcclComm>> comms = comms_;
  hold.unlock();
  state_->changed.notify_all();
  const auto until = Clock::now() + NcclComm::kLongestAbort;
  bool over = true;
  for (const auto& weak : comms) {
    if (const auto comm = weak.lock()) over = comm->cut_off(until) && over;
  }
  if (over) cudaStreamSynchronize(stream_.handle());
  hold.lock();
  std::vector<std::vector<Tensor>> tensors;
  if (over) {
    for (const Pending& p : pending_) tensors.push_back(p.work->take_tensors());
    pending_.clear();
  }
  gave_up_ = true;
  hold.unlock();
  tensors.clear();
  hold.lock();
  state_->changed.notify_all();
}

}  // namespace anabranch::cuda
