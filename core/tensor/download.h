// What the host reads of a GPU while that goes on.
#pragma once

#include <memory>
#include <utility>

#include "core/tensor/tensor.h"

namespace anabranch {

// A copy to the host of what a tensor was, in the order of its stream, when the copy began. A
// tensor of the CPU is not copied.
class Download {
 public:
  Download() = default;

  explicit Download(Tensor from) : from_(std::move(from)) {
    if (from_.device().is_cpu()) return;
    copy_ = from_.pool()->stream().start_download(std::as_const(from_).raw(), from_.bytes());
  }

  // Its elements. Waits for a GPU, which goes on with what was put on its stream since.
  [[nodiscard]] Tensor wait() const {
    if (copy_ == nullptr) return from_;
    Tensor here(from_.shape(), from_.dtype());
    from_.pool()->stream().finish_download(here.raw(), *copy_);
    return here;
  }

 private:
  Tensor from_;  // holds the stream
  std::shared_ptr<cuda::Readback> copy_;
};

}  // namespace anabranch
