// What Muon and Aurora are made of: their matrix products, beside the same products alone.
#pragma once

#include <memory>
#include <vector>

#include "core/ops/polar.h"
#include "core/tensor/pool.h"
#include "parallel/flat_store.h"
#include "runtime/config/config.h"

namespace anabranch {

// Equal matrices of a model that a matrix optimizer owns.
struct OwnedMatrices {
  int64_t count = 0, rows = 0, cols = 0;
  int64_t rounds = 1;  // orthogonalisations of each in a step
};

// Shapes of the store's matrices, each once; empty if AdamW has them.
[[nodiscard]] std::vector<OwnedMatrices> owned_matrices(const FlatStore& store,
                                                        const OptimConfig& optim);

// Operations of the products of orthogonalising one matrix once: of each iteration, the Gram matrix
// of the short side, its square, and what it is applied to.
[[nodiscard]] double polar_flops(int64_t rows, int64_t cols, size_t iterations);

struct MatrixRate {
  double flops = 0;         // of a step's products
  double seconds = 0;       // of a step, as the optimizer runs them: polar()
  double bare_seconds = 0;  // of the products alone

  [[nodiscard]] double of_bare() const { return bare_seconds / seconds; }
};

// Times a few matrices of each shape and takes the rest to be like them; medians of three calls
// after one of warm-up.
//
//   type  the run's compute type
[[nodiscard]] MatrixRate bench_matrices(const std::vector<OwnedMatrices>& owned,
                                        const OptimConfig& optim, DType type,
                                        const std::shared_ptr<Pool>& pool);

}  // namespace anabranch
