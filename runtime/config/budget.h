// Tokens, steps and batch that follow from a model's size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/model_config.h"
#include "runtime/config/sections.h"

namespace anabranch {

// The parameters that a run of kappa_moe is sized by:
//
//   N = N_blocks + N_head + r N_experts,  r = sqrt(top_k / experts)
//
// Scalars and tables that are looked up do not count; alpha and b count as the experts'. Budget
// `authors` has r = 1 where fewer than a fifth of the layers are mixtures.
//
// Source: Li et al., "Confidence-Adaptive SwiGLU for Mixture-of-Experts", 2026, appendix 8.
double scaling_parameters(const ModelConfig& model, int64_t vocabulary, Budget rule);

// How long a run of a model is and what a step of it takes.
struct RunSize {
  double tokens = 0;         // D = budget_ratio * N
  int64_t batch_tokens = 0;  // as given, or 2^19 (D / D_12)^0.383 to the nearest power of 2
  int64_t steps = 0;         // whole ones
};

// D_12 is that of a model of 12 layers with the same experts, so many in a row or sandwiched.
// Sizes must be filled; train.budget is not none. Source of the batch: nanochat.
RunSize size_run(const ModelConfig& model, const TrainConfig& train);

// Sets train.batch_tokens where it is 0, and train.steps of a run that has no length: no steps,
// tokens or epochs. Does nothing without a budget.
void fill_budget(const ModelConfig& model, TrainConfig& train);

// What the section's budget breaks.
std::vector<std::string> check_budget(const ModelConfig& model, const TrainConfig& train);

// Throws Error (config) if the budget counted another head than that of the data's vocabulary.
void check_budget_vocabulary(const TrainConfig& train, int64_t vocabulary);

}  // namespace anabranch
