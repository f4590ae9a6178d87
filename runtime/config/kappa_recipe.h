// Everything that the paper of kappa_moe says of its runs, and what its authors' program does
// where that differs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace anabranch {

// The presets that are recipes: sizes by model.depth, losses, optimizers, batch and length.
inline constexpr std::string_view kPaperRecipe = "kappa-paper", kAuthorsRecipe = "kappa-authors";

// Whether a preset is one.
[[nodiscard]] bool is_recipe(std::string_view preset);

// The depths that a recipe has: mixtures in a row below 16, sandwiched from there.
[[nodiscard]] std::vector<int64_t> recipe_depths();

// Sets what a recipe says; does nothing for other presets.
//
//   preset  "kappa-paper" or "kappa-authors"
//   wish    what the configuration itself says of the model: its depth, 12 if it is 0, and whether
//           it has kappa, which the authors balance less
//
// Source: Li et al., "Confidence-Adaptive SwiGLU for Mixture-of-Experts", 2026, sections 4.1 and
// 8, and the authors' program of that time.
void apply_recipe(Config& config, std::string_view preset, const ModelConfig& wish);

}  // namespace anabranch
