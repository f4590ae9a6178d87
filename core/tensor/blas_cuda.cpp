#include "core/cuda/blas.h"
#include "core/tensor/pool.h"

namespace anabranch {

cuda::Blas& Pool::blas() {
  if (!blas_) {
    const std::shared_ptr<void> workspace(allocate(cuda::Blas::kWorkspaceBytes, "matrix products"),
                                          [this](void* block) { release(block); });
    blas_ = {new cuda::Blas(stream_.handle(), workspace.get()),
             [workspace](cuda::Blas* blas) { delete blas; }};
  }
  return *blas_;
}

}  // namespace anabranch
