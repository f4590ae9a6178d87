// What the ranks tell each other at every step boundary, in one small sum.
#pragma once

#include <vector>

#include "parallel/comm/group.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/reports.h"
#include "runtime/stop_request.h"

namespace anabranch {

// The ranks' common view; equal on all of them.
struct Control {
  double loss = 0;  // summed over ranks
  StopKind stop = StopKind::kNone;
  int writing = 0, written = 0, publishing = 0, failed = 0;  // ranks in each phase of a save

  [[nodiscard]] bool save_busy() const { return writing + written + publishing + failed > 0; }
};

// Figures of this rank as they are over all ranks. What a rank does not know, not-a-number, does
// not count; a spread of nothing is not-a-number, its sum 0. Collective.
std::vector<Spread> spread(Group& world, const std::vector<double>& mine);

// Sums this rank's `loss`, wish to stop and save phase over `world`. Collective.
Control exchange(Group& world, double loss, StopKind stop, CheckpointSaver::Phase phase);

}  // namespace anabranch
