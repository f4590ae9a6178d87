#include "runtime/config/model_config.h"

#include <array>

namespace anabranch {

namespace {

struct Preset {
  const char* name;
  ModelType type;
  int64_t layers, width, heads, context;
};

// Named by the parameters without embeddings for 85M, and with them (at 2,048 positions) above:
// the names of the GPT-3 table.
constexpr std::array<Preset, 4> kPresets{{
    {"gpt2-2core", ModelType::kGpt2, 4, 192, 4, 128},
    {"gpt2-85m", ModelType::kGpt2, 12, 768, 12, 1024},
    {"gpt2-350m", ModelType::kGpt2, 24, 1024, 16, 1024},
    {"gpt2-760m", ModelType::kGpt2, 24, 1536, 16, 1024},
}};

}  // namespace

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

}  // namespace anabranch
