// What a forward keeps for its backward, and the most that a step holds of it at once.
//
// A bill by family, from what each op of its block captures: it needs no memory and no ranks, so it
// holds for layouts of thousands of them, which a trial run of a few layers would not. Tests hold
// it against what the allocator really hands out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/planner/layout.h"

namespace anabranch {

// How rows find their experts.
enum class RoutingShare : uint8_t {
  kEven,  // every expert has as many
  kWorst  // all rows of a model group meet at one rank's experts: reserved for, never exceeded
};

struct ActivationBytes {
  double kept = 0;       // at the end of a forward
  double peak = 0;       // at most, what backward and head hold besides included
  double regions = 0;    // of the peak: buffers of what travels to streams and experts and back
  double forwarded = 0;  // that all layers keep without recomputation: what a forward writes
};

// Of one rank and micro-batch, in bytes.
ActivationBytes activation_bytes(const Config& config, int64_t vocabulary, const Layout& layout,
                                 RoutingShare share = RoutingShare::kEven);

// Slots that a rank's experts have in one mixture layer and micro-batch: a row counts once for each
// of its experts there.
double expert_slots(const Config& config, const Layout& layout, RoutingShare share);

// Ranks besides its own that a row goes to, on average over evenly routed rows.
double remote_visits(const Config& config, const Layout& layout);

// Experts of a row, on average; 0 without experts.
double experts_of_row(const ModelConfig& model);

}  // namespace anabranch
