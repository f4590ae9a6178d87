// How fast a model of random weights samples.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor/pool.h"
#include "runtime/config/config.h"

namespace anabranch {

struct GenerateBenchOptions {
  int64_t vocabulary = 50257;
  int64_t batch = 1, prompt_tokens = 128;  // of each of the prompts, which are random
  int64_t tokens = 32;                     // new ones of each prompt, at least 2
  double temperature = 1;                  // 0: no sampling
  int64_t rounds = 3;                      // after one that does not count
};

struct GenerateBench {
  int64_t parameters = 0;
  // Of each round: until every prompt has its first new token, and from there to the last.
  std::vector<double> prefill_seconds, decode_seconds;
  int64_t gpu_waits = 0;        // of the host for its GPU, in the last round
  int64_t pool_peak_bytes = 0;  // of all models there were
};

// Throws Error (usage, 64) if prompt and new tokens together exceed the model's context.
GenerateBench bench_generate(const Config& config, const GenerateBenchOptions& options,
                             const std::shared_ptr<Pool>& pool);

// The same of two configurations that take turns, so that the rounds of both are pairs.
std::array<GenerateBench, 2> bench_generate(const Config& config, const Config& against,
                                            const GenerateBenchOptions& options,
                                            const std::shared_ptr<Pool>& pool);

}  // namespace anabranch
