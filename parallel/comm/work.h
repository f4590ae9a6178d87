// A collective that was started and may still run.
#pragma once

#include <memory>

namespace anabranch {

struct WorkState;

// A copyable handle. The tensors of the collective are held until it is done, and must neither be
// written (nor, those that it writes, read) before wait() has returned.
class Work {
 public:
  Work() = default;  // done

  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  // Returns once the collective is done. Throws Error (peer lost) if the group was aborted or its
  // deadline has passed; then the tensors hold nothing of use.
  void wait() const;

  [[nodiscard]] bool done() const;

  // How long the communication thread was busy with it, waiting for peers included; 0 until done.
  [[nodiscard]] double seconds() const;

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace anabranch
