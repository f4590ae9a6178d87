#include "runtime/config/validate_model.h"

#include <algorithm>

#include "core/base/error.h"
#include "runtime/config/kappa_recipe.h"
#include "runtime/config/nearest.h"
#include "runtime/config/validate_moep.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {
namespace {

constexpr double kLargestRange = 8;  // of kappa_swiglu
constexpr double kLeastSoftcap = 0.1;

std::vector<std::string> check_streams(const ModelConfig& model) {
  std::vector<std::string> broken;
  const auto require = [&](bool holds, const auto&... parts) {
    if (!holds) broken.push_back(join(parts...));
  };
  const bool pipeline =
      model.type == ModelType::kCmollm && model.cmollm.mode == StreamMode::kPipeline;
  require(model.gpt2.dropout == 0 || (!pipeline && model.type != ModelType::kParascale),
          "model.dropout is ", model.gpt2.dropout, ", and a model that runs copies of its input ",
          "has none: set it to 0");
  if (model.type != ModelType::kCmollm) return broken;
  const CmollmKeys& keys = model.cmollm;
  const bool averages =
      keys.variant == GateVariant::kContextAware || keys.variant == GateVariant::kAdaptive;
  require(!averages || model.width % 4 == 0, "model.width ", model.width,
          " is not a multiple of 4, as model.variant ", word_of(keys.variant), " needs");
  require(keys.variant != GateVariant::kMultiHead || model.width % keys.gate_heads == 0,
          "model.width ", model.width, " is not a multiple of model.gate_heads ", keys.gate_heads);
  require(!pipeline || keys.mix == MixPoint::kPre,
          "model.mix post is for model.mode ffn; a pipeline mixes no kernels");
  require(keys.span <= model.layers || model.layers == 0, "model.span ", keys.span,
          " is more than model.layers ", model.layers);
  return broken;
}

std::vector<std::string> check_kappa(const Config& config) {
  const ModelConfig& model = config.model;
  const KappaKeys& keys = model.kappa;
  std::vector<std::string> broken;
  const auto require = [&](bool holds, const auto&... parts) {
    if (!holds) broken.push_back(join(parts...));
  };
  require(keys.top_k <= keys.experts, "model.top_k ", keys.top_k, " is more than model.experts ",
          keys.experts);
  require(keys.kappa_range <= kLargestRange, "model.kappa_range ", keys.kappa_range,
          " is more than ", kLargestRange, ", the most that the op takes");
  require(keys.softcap == 0 || keys.softcap >= kLeastSoftcap, "model.softcap ", keys.softcap,
          " leaves no logits to tell apart: give at least ", kLeastSoftcap, ", or 0 for none");
  const std::vector<int64_t> depths = recipe_depths();
  std::vector<std::string> names;
  names.reserve(depths.size());
  for (const int64_t depth : depths) names.push_back(std::to_string(depth));
  require(!is_recipe(model.preset) || std::ranges::find(depths, keys.depth) != depths.end(),
          "model.depth ", keys.depth, " is none of model.preset ", model.preset, ", which has ",
          word_list(names), ": other sizes are keys beside one of them");
  if (model.layers == 0 || model.heads == 0) return broken;  // reported as not set
  require(model.width % (2 * model.heads) == 0 || model.width % model.heads != 0, "model.width ",
          model.width, " with model.heads ", model.heads, " has heads of width ",
          model.width / model.heads, ", must be even for rotary positions");
  if (keys.sandwich) {
    require(model.layers >= 2, "model.sandwich needs at least 2 model.layers, there is ",
            model.layers);
    return broken;
  }
  require(keys.moe_first < model.layers, "model.moe_first ", keys.moe_first,
          " is not below model.layers ", model.layers);
  require(keys.moe_first >= model.layers || keys.moe_layers <= model.layers - keys.moe_first,
          "model.moe_first ", keys.moe_first, " and model.moe_layers ", keys.moe_layers,
          " go beyond model.layers ", model.layers);
  return broken;
}

// A micro-batch has whole pools, or several ranks' micro-batches are one.
std::vector<std::string> check_pools(const Config& config) {
  const int64_t micro_batch = config.train.micro_batch, pool = pool_sequences(config.model);
  if (micro_batch % pool == 0 || pool % micro_batch == 0) return {};
  return {join("train.micro_batch ", micro_batch, " and model.pool_sequences ", pool,
               ": one must be a multiple of the other")};
}

}  // namespace

std::vector<std::string> check_family(const Config& config) {
  const ModelConfig& model = config.model;
  std::vector<std::string> broken, pools;
  switch (model.type) {
    case ModelType::kKappaMoe:
      broken = check_kappa(config);
      pools = check_pools(config);
      break;
    case ModelType::kMoepMsit:
      broken = check_moep(model);
      pools = check_pools(config);
      for (std::string& line : check_masking(config)) pools.push_back(std::move(line));
      break;
    default:
      return check_streams(model);
  }
  broken.insert(broken.end(), pools.begin(), pools.end());
  return broken;
}

}  // namespace anabranch
