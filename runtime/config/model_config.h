// The `model` section and the presets it can start from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/values.h"

namespace anabranch {

struct ModelConfig {
  ModelType type = ModelType::kGpt2;
  std::string preset = "none";
  int64_t layers = 0, width = 0, heads = 0, context = 0, ffn_width = 0;
  double dropout = 0;
  GeluForm gelu = GeluForm::kTanh;
  double norm_eps = 1e-5;
  bool recompute = false;

  void visit(auto&& f) {
    f("type", type, "the family of models");
    f("preset", preset, "sizes to start from; keys given beside it win");
    f("layers", layers, int64_t{0}, int64_t{4096}, "transformer blocks");
    f("width", width, int64_t{0}, int64_t{1} << 20, "width of the residual stream");
    f("heads", heads, int64_t{0}, int64_t{65536}, "attention heads; they divide the width");
    f("context", context, int64_t{0}, int64_t{1} << 24, "tokens of a sequence");
    f("ffn_width", ffn_width, int64_t{0}, int64_t{1} << 24,
      "hidden width of the feed-forward part; 0: 4 x width");
    f("dropout", dropout, 0.0, 0.99, "share of activations dropped in training");
    f("gelu", gelu, "exact GELU (erf) or GPT-2's approximation (tanh)");
    f("norm_eps", norm_eps, 1e-12, 1e-1, "added to the variance in layer norms");
    f("recompute", recompute, "keep only each block's input and compute the rest again backward");
  }

  bool operator==(const ModelConfig&) const = default;
};

// "none" and the presets' names.
std::vector<std::string> model_presets();

// Sets the sizes of the preset that `name` names. Returns false if there is none.
bool apply_preset(ModelConfig& model, const std::string& name);

}  // namespace anabranch
