// A run's loss at a number of tokens, as rules over runs compare it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "runtime/run_series.h"
#include "runtime/sweep/sweep_rules.h"

namespace anabranch {

inline constexpr int64_t kAllTokens = std::numeric_limits<int64_t>::max();

// Tokens up to which a run has such losses: of its last step, or of its last evaluation.
int64_t reached_tokens(const RunSeries& series, LossKind by, int64_t batch_tokens);

// Nats per token, of what was known at so many tokens; not-a-number is given as such.
//
//   loss             the mean over the steps of the last tenth of those tokens
//   validation_loss  the last evaluation, its mean over sources; not those that look ahead
//
// None: nothing was known.
std::optional<double> loss_at(const RunSeries& series, LossKind by, int64_t batch_tokens,
                              int64_t tokens = kAllTokens);

}  // namespace anabranch
