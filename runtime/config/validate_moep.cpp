#include "runtime/config/validate_moep.h"

#include <algorithm>

#include "core/base/error.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {

std::vector<std::string> check_moep(const ModelConfig& model) {
  const MoepKeys& keys = model.moep;
  std::vector<std::string> broken;
  const auto require = [&](bool holds, auto&&... parts) {
    if (!holds) broken.push_back(join(parts...));
  };
  const auto experts = static_cast<double>(keys.windows.size());
  require(!keys.windows.empty() && std::ranges::all_of(keys.windows, [](auto w) { return w >= 1; }),
          "model.windows must name the window of each expert, at least one of them, none below 1");
  require(keys.expert_width % keys.expert_heads == 0, "model.expert_width ", keys.expert_width,
          " is not a multiple of model.expert_heads ", keys.expert_heads);
  require(keys.expert_width / keys.expert_heads % 2 == 0, "model.expert_width ", keys.expert_width,
          " over model.expert_heads ", keys.expert_heads,
          " is odd; rotary positions need an even head width");
  require(model.heads == 0 || model.width / model.heads % 2 == 0, "model.width ", model.width,
          " over model.heads ", model.heads, " is odd; rotary positions need an even head width");
  require(keys.capacity > 0 && keys.capacity <= experts, "model.capacity is ", keys.capacity,
          ", but must be above 0 and at most ", experts, ", the experts that model.windows names");
  require(keys.order == SlotOrder::kTime || !keys.windowed || keys.window == SlotPosition::kCompact,
          "model.order affinity lists rows by score, where no window of the text lies together: "
          "give model.window compact or model.windowed false");
  return broken;
}

std::vector<std::string> check_segments(const Config& config) {
  const MoepKeys& keys = config.model.moep;
  const int64_t model = config.parallel.model.value, micro_batch = config.train.micro_batch;
  const int64_t pool = pool_sequences(config.model);
  if (keys.segments != SegmentScope::kPool || (model <= 1 && pool <= micro_batch)) return {};
  return {join("model.segments pool lets experts attend over a pool, which must be on one rank ",
               "then, but parallel.model is ", model, ", model.pool_sequences ", pool,
               " and train.micro_batch ", micro_batch,
               ": use parallel.model 1 and a micro-batch of whole pools, or model.segments ",
               "sequence")};
}

std::vector<std::string> check_masking(const Config& config) {
  const MoepKeys& keys = config.model.moep;
  std::vector<std::string> broken;
  if (keys.causal_ratio >= 1) return broken;
  const std::string why = join("model.causal_ratio ", keys.causal_ratio, " makes masked steps, ");
  if (keys.mask_first == 0 || keys.mask_last == 0) {
    broken.push_back(join(why, "so model.mask_first ", keys.mask_first, " and model.mask_last ",
                          keys.mask_last, " must be above 0"));
  }
  if (config.train.outlier_sigma > 0) {
    broken.push_back(join(why, "whose loss is no outlier among causal ones: train.outlier_sigma ",
                          config.train.outlier_sigma, " must be 0"));
  }
  return broken;
}

}  // namespace anabranch
