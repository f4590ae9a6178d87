// Times attention alone: forward and backward, float32 and bfloat16, at GPT-2's shape.
//
//   attention_bench [batch] [tokens] [heads] [head width]
//
// Prints medians and GFLOP/s, counting the products below the diagonal only: 2 in the forward and
// 5 in the backward (4 of the gradient and the recomputed scores).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/autograd/tape.h"
#include "core/base/parallel_for.h"
#include "core/base/philox.h"
#include "core/ops/attention.h"

namespace anabranch {
namespace {

Tensor random(Shape shape, uint64_t seed, DType type, const std::shared_ptr<Pool>& pool) {
  Tensor t(shape, type, pool, "bench");
  dispatch(type, [&]<class T>() {
    T* to = t.data<T>();
    for (int64_t i = 0; i < t.count(); ++i) {
      const PhiloxBlock word = philox(seed, static_cast<uint64_t>(i));
      to[i] = T(static_cast<Accumulator<T>>(normal_pair(word[0], word[1])[0]));
    }
  });
  return t;
}

template <class F>
double median_seconds(const F& f) {
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  return times[5];
}

void run(DType type, int64_t batch, int64_t tokens, int64_t heads, int64_t width) {
  const auto pool = std::make_shared<Pool>();
  const int64_t rows = batch * tokens, channels = heads * width;
  const Tensor qkv = random({rows, 3 * channels}, 1, type, pool);
  const Tensor dy = random({rows, channels}, 2, type, pool);
  Tensor y = qkv.like({rows, channels}, type, "y");
  Tensor lse = qkv.like({batch, heads, tokens}, accumulator_of(type), "lse");
  GradSink dqkv{qkv.like("dqkv"), false};
  const double forward = median_seconds([&] { cpu::attention_forward(y, lse, qkv); });
  const double backward = median_seconds([&] { cpu::attention_backward(dqkv, dy, qkv, y, lse); });
  const auto product = static_cast<double>(batch * heads * tokens * (tokens + 1) * width);
  std::printf(
      "%-9s B %ld T %ld H %ld D %ld: forward %.2f ms %.0f GFLOP/s, backward %.2f ms %.0f "
      "GFLOP/s\n",
      name_of(type), batch, tokens, heads, width, forward * 1e3, 2e-9 * product / forward,
      backward * 1e3, 5e-9 * product / backward);
}

}  // namespace
}  // namespace anabranch

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return i < argc ? std::strtol(argv[i], nullptr, 10) : otherwise;
  };
  for (const auto type : {anabranch::DType::kF32, anabranch::DType::kBF16}) {
    anabranch::run(type, argument(1, 4), argument(2, 1024), argument(3, 12), argument(4, 64));
  }
  return 0;
}
