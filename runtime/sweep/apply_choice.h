// What a sweep's `choose` makes of its points.
#pragma once

#include <vector>

#include "runtime/sweep/expand.h"
#include "runtime/sweep/sweep_points.h"

namespace anabranch {

// Sets the rule's key of every point to what its pilot has measured for the point's labels, and
// adds a sentence for each to `sweep.chosen`; where the pilot is not done, to `sweep.unchosen`.
//
// Throws Error (config): a point that has no such label, or the key already; labels that the pilot
// has no point of.
void apply_choice(const ChooseRule& rule, const SweepOptions& options,
                  std::vector<SweepDraft>& drafts, Sweep& sweep);

}  // namespace anabranch
