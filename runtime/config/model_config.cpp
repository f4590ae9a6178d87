#include "runtime/config/model_config.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace anabranch {

namespace {

struct Preset {
  const char* name;
  ModelType type;
  int64_t layers, width, heads, context;
};

// Named by the parameters without embeddings for 85M, and with them (at 2,048 positions) above:
// the names of the GPT-3 table.
constexpr std::array<Preset, 12> kPresets{{
    {"gpt2-2core", ModelType::kGpt2, 4, 192, 4, 128},
    {"gpt2-85m", ModelType::kGpt2, 12, 768, 12, 1024},
    {"gpt2-350m", ModelType::kGpt2, 24, 1024, 16, 1024},
    {"gpt2-760m", ModelType::kGpt2, 24, 1536, 16, 1024},
    {"cmollm-2core", ModelType::kCmollm, 4, 192, 4, 128},
    {"parascale-2core", ModelType::kParascale, 4, 192, 4, 128},
    {"altup-2core", ModelType::kAltup, 4, 192, 4, 128},
    {"moep-2core", ModelType::kMoepMsit, 4, 192, 4, 128},
    {"kappa-2core", ModelType::kKappaMoe, 4, 192, 4, 128},
    {"moep-msit", ModelType::kMoepMsit, 6, 256, 4, 512},
    {"kappa-paper", ModelType::kKappaMoe, 0, 0, 0, 2048},  // sizes by model.depth: kappa_recipe.h
    {"kappa-authors", ModelType::kKappaMoe, 0, 0, 0, 2048},
}};

void fill_depth(ModelConfig& model) {
  if (model.kappa.depth == 0) return;
  constexpr int64_t kAspect = 96, kHead = 128;
  if (model.layers == 0) model.layers = model.kappa.depth;
  if (model.width == 0) model.width = (model.kappa.depth * kAspect + kHead - 1) / kHead * kHead;
  if (model.heads == 0) model.heads = model.width / kHead;
}

}  // namespace

int64_t two_thirds_of_four(int64_t width, FfnRound round) {
  const int64_t below = 8 * width / 24 * 8;  // 8/3 width, cut to a multiple of 8
  const int64_t rest = 8 * width - 3 * below;
  if (rest == 0) return below;
  return round == FfnRound::kCeil || 2 * rest >= 24 ? below + 8 : below;
}

std::vector<std::string> model_presets() {
  std::vector<std::string> names{"none"};
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

bool apply_preset(ModelConfig& model, const std::string& name) {
  if (name == "none") return true;
  for (const Preset& preset : kPresets) {
    if (name != preset.name) continue;
    model.type = preset.type;
    model.layers = preset.layers;
    model.width = preset.width;
    model.heads = preset.heads;
    model.context = preset.context;
    return true;
  }
  return false;
}

void apply_compat(MoepKeys& keys, Compat compat) {
  if (compat == Compat::kNone) return;
  keys.order = SlotOrder::kAffinity;
  keys.segments = SegmentScope::kPool;
  keys.rope_position = SlotPosition::kCompact;
  keys.window = SlotPosition::kCompact;
  keys.ffn_round = FfnRound::kCeil;
}

int64_t pool_sequences(const MoepKeys& keys) {
  return keys.select == Selection::kEcSeq ? 1 : keys.pool_sequences;
}

std::vector<bool> mixture_layers(const KappaKeys& keys, int64_t layers) {
  std::vector<bool> mixture(static_cast<size_t>(layers), false);
  const int64_t first = keys.sandwich ? std::max<int64_t>(layers / 2 - 1, 0) : keys.moe_first;
  const int64_t count = keys.sandwich ? 2 : keys.moe_layers == 0 ? layers : keys.moe_layers;
  for (int64_t l = first; l < std::min(first + count, layers); ++l) {
    mixture[static_cast<size_t>(l)] = true;
  }
  return mixture;
}

void fill_sizes(ModelConfig& model) {
  if (model.type == ModelType::kKappaMoe) fill_depth(model);
  if (model.ffn_width != 0) return;
  model.ffn_width = model.type == ModelType::kMoepMsit
                        ? two_thirds_of_four(model.width, model.moep.ffn_round)
                        : 4 * model.width;
}

PartCounts part_counts(const ModelConfig& model) {
  switch (model.type) {
    case ModelType::kCmollm:
      return {model.layers, model.cmollm.streams, 0};
    case ModelType::kMoepMsit:
      return {model.layers, 0, std::ssize(model.moep.windows)};
    case ModelType::kKappaMoe:
      return {model.layers, 0, model.kappa.experts};
    default:
      return {};
  }
}

}  // namespace anabranch
