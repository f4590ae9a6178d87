#include "runtime/bench/matrix_bench.h"

#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/ops/gemm.h"
#include "core/ops/matrix_batch.h"
#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

PolarForm form_of(const OptimConfig& optim) {
  return optim.matrix == MatrixOptimizer::kMuon
             ? PolarForm::polar_express()
             : PolarForm::simple_quintic(static_cast<int>(optim.polar_steps));
}

// The products of the iterations on matrix `i` of a batch, on values that stay as they are.
template <class T>
void bare_products(const MatrixBatch& batch, const Tensor& x, const Tensor& gram, Tensor& square,
                   Tensor& applied, int64_t i, size_t iterations) {
  using A = Accumulator<T>;
  const bool tall = batch.rows > batch.cols;
  const int64_t s = batch.shorter(), l = batch.longer();
  const T *of_x = batch.at(x, i).template data<T>(), *of_gram = gram.data<T>() + i * s * s;
  A *of_square = square.data<A>() + i * s * s, *to = batch.at(applied, i).template data<A>();
  for (size_t n = 0; n < iterations; ++n) {
    cpu::gemm<T, A>(of_square, of_x, of_x, {s, s, l, tall, !tall});
    cpu::gemm<T, A>(of_square, of_gram, of_gram, {s, s, s});
    if (tall) {
      cpu::gemm<T, A>(to, of_x, of_gram, {l, s, s});
    } else {
      cpu::gemm<T, A>(to, of_gram, of_x, {s, l, s});
    }
  }
}

}  // namespace

std::vector<OwnedMatrices> owned_matrices(const FlatStore& store, const OptimConfig& optim) {
  std::vector<OwnedMatrices> all;
  if (optim.matrix == MatrixOptimizer::kAdamw) return all;
  for (const FlatStore::Entry& entry : store.entries()) {
    const Param& w = *entry.param;
    if (w.owner != Owner::kMatrix) continue;
    const int64_t cols = w.shape[-1], rows = w.shape.count() / (cols * w.matrices);
    const auto same = std::ranges::find_if(
        all, [&](const OwnedMatrices& m) { return m.rows == rows && m.cols == cols; });
    if (same != all.end()) {
      same->count += w.matrices;
      continue;
    }
    const bool twice = optim.matrix == MatrixOptimizer::kAurora && rows != cols;
    all.push_back({w.matrices, rows, cols, twice ? optim.aurora_rounds : 1});
  }
  return all;
}

double polar_flops(int64_t rows, int64_t cols, size_t iterations) {
  const auto s = static_cast<double>(std::min(rows, cols)),
             l = static_cast<double>(std::max(rows, cols));
  return static_cast<double>(iterations) * 2 * (2 * s * s * l + s * s * s);
}

MatrixRate bench_matrices(const std::vector<OwnedMatrices>& owned, const OptimConfig& optim,
                          DType type, const std::shared_ptr<Pool>& pool) {
  const PolarForm form = form_of(optim);
  MatrixRate rate;
  for (const OwnedMatrices& m : owned) {
    // Small ones run side by side: as many as keep every thread at work.
    const bool small = m.rows * m.cols <= int64_t{1} << 20;
    const int64_t sample = small ? std::min<int64_t>(m.count, 4 * thread_count()) : 1;
    const MatrixBatch batch{sample, m.rows, m.cols};
    const int64_t s = batch.shorter();
    const Tensor in = random_values({sample, m.rows, m.cols}, accumulator_of(type), pool);
    Tensor out = in.like("bench");
    const Tensor x = random_values(in.shape(), type, pool);
    const Tensor gram = random_values({sample, s, s}, type, pool);
    Tensor square = in.like({sample, s, s}, in.dtype(), "bench");
    const auto steps = static_cast<double>(m.count * m.rounds) / static_cast<double>(sample);
    rate.flops += static_cast<double>(m.count * m.rounds) *
                  polar_flops(m.rows, m.cols, form.iterations.size());
    rate.seconds += steps * median(seconds_of(3, [&] { polar(out, in, type, form); }));
    rate.bare_seconds +=
        steps * median(seconds_of(3, [&] {
          cpu::each_matrix(batch, [&](int64_t i) {
            dispatch(type, [&]<class T>() {
              bare_products<T>(batch, x, gram, square, out, i, form.iterations.size());
            });
          });
        }));
  }
  return rate;
}

}  // namespace anabranch
