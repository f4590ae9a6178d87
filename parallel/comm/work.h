// A collective that was started and may still run.
#pragma once

#include <memory>
#include <utility>

namespace anabranch {

// What a handle refers to: a collective of a communication thread, or one on a GPU.
class WorkState {
 public:
  WorkState() = default;
  virtual ~WorkState() = default;
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  virtual void wait() = 0;
  virtual bool done() = 0;
  virtual double seconds() = 0;
  virtual double held_up() = 0;
};

// A copyable handle. The tensors of the collective are held until it is done, and must neither be
// written (nor, those that it writes, read) before wait() has returned.
class Work {
 public:
  Work() = default;  // done

  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  // Of tensors of the CPU: returns once the collective is done. Of a GPU: has the streams of the
  // tensors wait for it, and returns at once. Throws Error (peer lost) if the group was aborted or
  // its deadline has passed; then the tensors hold nothing of use. On a GPU that may happen after
  // it has returned, too: whoever brings results to the host asks Group::check() then.
  void wait() const {
    if (state_) state_->wait();
  }

  [[nodiscard]] bool done() const { return !state_ || state_->done(); }

  // How long it took, waiting for peers included: of the communication thread, or of the GPU's
  // communication stream; 0 until done.
  [[nodiscard]] double seconds() const { return state_ ? state_->seconds() : 0; }

  // How long its waits held up their callers, or of a GPU the streams that wait; 0 until done.
  [[nodiscard]] double held_up() const { return state_ ? state_->held_up() : 0; }

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace anabranch
