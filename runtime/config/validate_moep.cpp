#include "runtime/config/validate_moep.h"

#include <algorithm>

#include "core/base/error.h"

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
  require(keys.causal_ratio >= 1, "model.causal_ratio is ", keys.causal_ratio,
          ", but masked batches are not available: leave it at 1");
  return broken;
}

}  // namespace anabranch
