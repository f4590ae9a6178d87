// The `model` section and the presets it can start from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "monitoring/part_counts.h"
#include "runtime/config/family_config.h"

namespace anabranch {

struct ModelConfig {
  ModelType type = ModelType::kGpt2;
  std::string preset = "none";
  int64_t layers = 0, width = 0, heads = 0, context = 0, ffn_width = 0;
  bool recompute = false;
  Gpt2Keys gpt2;
  CmollmKeys cmollm;
  ParascaleKeys parascale;
  AltupKeys altup;
  MoepKeys moep;
  KappaKeys kappa;

  // Visits the keys that the family has: the others are unknown.
  void visit(auto&& f) {
    f("type", type, "the family of models");
    f("preset", preset, "sizes to start from; keys given beside it win");
    f("layers", layers, int64_t{0}, int64_t{4096}, "transformer blocks");
    f("width", width, int64_t{0}, int64_t{1} << 20, "width of the residual stream");
    f("heads", heads, int64_t{0}, int64_t{65536}, "attention heads; they divide the width");
    f("context", context, int64_t{0}, int64_t{1} << 24, "tokens of a sequence");
    f("ffn_width", ffn_width, int64_t{0}, int64_t{1} << 24,
      "hidden width of the feed-forward part; 0: 4 x width (moep_msit: 8/3 x)");
    f("recompute", recompute, "keep only each block's input and compute the rest again backward");
    visit_family(f);
  }

  bool operator==(const ModelConfig&) const = default;

 private:
  void visit_family(auto&& f) {
    switch (type) {
      case ModelType::kGpt2:
        return gpt2.visit(f);
      case ModelType::kCmollm:
        gpt2.visit(f);
        return cmollm.visit(f);
      case ModelType::kParascale:
        gpt2.visit(f);
        return parascale.visit(f);
      case ModelType::kAltup:
        gpt2.visit(f);
        return altup.visit(f);
      case ModelType::kMoepMsit:
        return moep.visit(f);
      case ModelType::kKappaMoe:
        return kappa.visit(f);
    }
  }
};

// Channels that the gates of kappa_moe's value embeddings read.
inline constexpr int64_t kGateChannels = 32;

// "none" and the presets' names.
std::vector<std::string> model_presets();

// Sets the family and sizes of the preset that `name` names. Returns false if there is none. What
// else a recipe sets: kappa_recipe.h.
bool apply_preset(ModelConfig& model, const std::string& name);

// Sets the keys that model.compat stands for.
void apply_compat(MoepKeys& keys, Compat compat);

// The nearest multiple of 8 to 8/3 of a width, or the next one.
int64_t two_thirds_of_four(int64_t width, FfnRound round);

// Sequences of a moep_msit model that compete: 1 where each is a pool of its own.
int64_t pool_sequences(const MoepKeys& keys);

// Which of `layers` layers of a kappa_moe model are mixtures.
std::vector<bool> mixture_layers(const KappaKeys& keys, int64_t layers);

// Fills the sizes that follow from others: ffn_width, and of depth.
void fill_sizes(ModelConfig& model);

// The layers and parts that the model's figures speak of; all 0: it has none. Sizes must be filled.
PartCounts part_counts(const ModelConfig& model);

}  // namespace anabranch
