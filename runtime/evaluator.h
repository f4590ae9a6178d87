// Loss on validation text.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/group.h"
#include "runtime/models/model.h"
#include "runtime/reports.h"

namespace anabranch {

// Runs the model over batches of targets and adds up over all ranks; every rank must bring equally
// many batches (a short rank brings batches whose targets are all -1).
//
//   next         fills the next batch, or returns false
//   token_bytes  [V]  bytes of each token's text, 0 for special tokens
//
//   routing      kAsTrained for the loss of a model that looks ahead
//
// The report's loss is nats per target; bits per byte counts the targets that have bytes, and
// their bytes: sum of nats / (ln 2 * bytes). It depends on no training state and changes none. On a
// GPU the host waits once a batch, for its losses.
EvalReport evaluate(Model& model, const std::function<bool(MicroBatch&)>& next,
                    std::span<const int32_t> token_bytes, Group& world,
                    Routing routing = Routing::kCausal);

}  // namespace anabranch
