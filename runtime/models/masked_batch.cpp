#include "runtime/models/masked_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/philox.h"

namespace anabranch {
namespace {

// A key of its own for each kind of draw, apart from dropout's.
uint64_t key_of(const StepKey& key, std::string_view purpose) {
  return mix_keys(mix_keys(key.seed, name_key(purpose)), static_cast<uint64_t>(key.step));
}

uint64_t whole_word(const PhiloxBlock& block) { return (uint64_t{block[0]} << 32U) | block[1]; }

}  // namespace

bool is_masked(const MoepKeys& keys, const StepKey& key) {
  if (keys.causal_ratio >= 1) return false;
  const double draw = static_cast<double>(philox(key_of(key, "moep.masked_step"), 0)[0]) * 0x1p-32;
  return draw >= keys.causal_ratio;
}

int64_t masked_tokens(const MoepKeys& keys, double progress, int64_t tokens) {
  const double share = keys.mask_first + (keys.mask_last - keys.mask_first) * progress;
  const int64_t count = std::llround(share * static_cast<double>(tokens));
  return std::clamp<int64_t>(count, 1, tokens);
}

MicroBatch masked(const MicroBatch& batch, const MoepKeys& keys, int64_t mask_id, int64_t count,
                  const StepKey& key) {
  const int64_t B = batch.inputs.dim(0), T = batch.inputs.dim(1);
  const bool same = keys.mlm_target == MaskTarget::kSame;
  const uint64_t draws = key_of(key, "moep.mask");
  MicroBatch to = batch;
  to.inputs = batch.inputs.clone();
  to.targets = batch.targets.like({B, T}, DType::kI32, "moep.masked_targets");
  std::ranges::fill(to.targets.span<int32_t>(), -1);
  std::vector<uint64_t> lots(static_cast<size_t>(T));
  std::vector<int64_t> order(static_cast<size_t>(T));
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      const auto row = static_cast<uint64_t>((batch.first_sample + b) * T + t);
      lots[static_cast<size_t>(t)] = whole_word(philox(draws, row));
    }
    std::iota(order.begin(), order.end(), 0);
    std::ranges::nth_element(order, order.begin() + count - 1, [&](int64_t x, int64_t y) {
      const uint64_t of_x = lots[static_cast<size_t>(x)], of_y = lots[static_cast<size_t>(y)];
      return of_x != of_y ? of_x < of_y : x < y;
    });
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = b * T + order[static_cast<size_t>(i)];
      const Tensor& of = same ? batch.inputs : batch.targets;
      to.targets.data<int32_t>()[at] = of.data<int32_t>()[at];
      to.inputs.data<int32_t>()[at] = static_cast<int32_t>(mask_id);
    }
  }
  return to;
}

}  // namespace anabranch
