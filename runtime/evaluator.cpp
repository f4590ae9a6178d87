#include "runtime/evaluator.h"

#include <chrono>
#include <cmath>
#include <numbers>

namespace anabranch {
namespace {

// What is added up over batches and ranks.
enum Sum : int { kNats, kTargets, kBytes, kNatsWithBytes, kSums };

void add_batch(double* sums, const Tensor& losses, const Tensor& targets,
               std::span<const int32_t> token_bytes) {
  const int32_t* target = targets.data<int32_t>();
  dispatch(losses.dtype(), [&]<class T>() {
    const T* loss = losses.data<T>();
    for (int64_t i = 0; i < targets.count(); ++i) {
      if (target[i] < 0) continue;
      const auto nats = static_cast<double>(static_cast<Accumulator<T>>(loss[i]));
      const int32_t bytes = token_bytes[static_cast<size_t>(target[i])];
      sums[kNats] += nats;
      sums[kTargets] += 1;
      sums[kBytes] += bytes;
      if (bytes > 0) sums[kNatsWithBytes] += nats;
    }
  });
}

}  // namespace

EvalReport evaluate(Model& model, const std::function<bool(MicroBatch&)>& next,
                    std::span<const int32_t> token_bytes, Group& world, Routing routing) {
  const auto begin = std::chrono::steady_clock::now();
  Tensor sums({kSums}, DType::kF64);
  sums.fill_zero();
  for (MicroBatch batch; next(batch);) {
    const Tensor losses = model.token_losses(batch, routing).on_host();
    add_batch(sums.data<double>(), losses, batch.targets, token_bytes);
  }
  world.all_reduce_sum(sums).wait();

  const double* sum = sums.data<double>();
  EvalReport report;
  report.looks_ahead = routing == Routing::kAsTrained;
  report.tokens = static_cast<int64_t>(sum[kTargets]);
  report.loss = sum[kNats] / std::max(sum[kTargets], 1.0);
  report.perplexity = std::exp(report.loss);
  report.bits_per_byte = sum[kNatsWithBytes] / (std::numbers::ln2 * std::max(sum[kBytes], 1.0));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace anabranch
