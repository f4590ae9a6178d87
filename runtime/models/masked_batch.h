// The masked-language-model phase of MoEP-MSIT: which steps it has, which tokens are masked in them
// and what is learnt there.
//
// A step is causal or masked as a whole, by a draw of its seed and number; which of a sequence's
// tokens are masked is drawn by their global rows. So any layout of the ranks, and a resume, see
// the same. The mask token is the last of the vocabulary; it stands in every masked place.
//
// Source: Jain et al., "XpertGPT: Multi-Scale Sparse Expert Routing", 2026.
#pragma once

#include "runtime/config/family_config.h"
#include "runtime/models/model.h"

namespace anabranch {

// Whether the batches of this step are masked: a share 1 - keys.causal_ratio of all steps is.
[[nodiscard]] bool is_masked(const MoepKeys& keys, const StepKey& key);

// How many tokens of each sequence of T are: the share moves from mask_first, at the first step, to
// mask_last, at the last one, and at least one is.
[[nodiscard]] int64_t masked_tokens(const MoepKeys& keys, double progress, int64_t tokens);

// `batch` with `count` tokens of each sequence masked, and targets there alone (elsewhere -1): the
// token itself or the one that follows it, as keys.mlm_target says.
[[nodiscard]] MicroBatch masked(const MicroBatch& batch, const MoepKeys& keys, int64_t mask_id,
                                int64_t count, const StepKey& key);

}  // namespace anabranch
