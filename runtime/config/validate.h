// The rules that tie several keys together.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/config.h"

namespace anabranch {

// Checks that the keys agree. Throws Error (config) that lists every broken rule with its numbers.
void validate(const Config& config);

// The optimizer steps of a whole run; 0 if the section does not say, or not yet (epochs).
[[nodiscard]] int64_t planned_steps(const TrainConfig& train);

// The same of a run, by the configuration that it keeps. Throws Error (config) as load_config(),
// validate() and plan_batch() do.
[[nodiscard]] int64_t planned_steps(const std::string& config_file);

// How a step and a run are cut up, for a number of ranks.
struct BatchPlan {
  int64_t sequences = 0;     // of one step over all ranks
  int64_t accumulation = 0;  // micro-batches a rank computes in one step
  int64_t steps = 0;         // optimizer steps of the whole run
};

// Cuts train.batch_tokens into context x micro_batch x ranks, and the run into steps. Never pads:
// throws Error (config) with the nearest legal values if they do not divide.
BatchPlan plan_batch(const Config& config, int64_t ranks);

// "3 steps of 8 sequences, 2 micro-batches a rank and step"; without the number if it is not known.
std::string batch_text(const BatchPlan& plan);

}  // namespace anabranch
