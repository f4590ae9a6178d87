// The runs of a sweep on this machine, some at a time.
#pragma once

#include <cstdint>

#include "runtime/sweep/sweep_directory.h"

namespace anabranch {

struct LocalSweepWish {
  int64_t at_once = 1;
  int64_t ranks = 1;   // of a run
  bool retry = false;  // failed runs too, and those that were stopped by hand
  double every = 1;    // seconds between two looks
};

// Starts what is to be started through launch/local.sh, each run once, and follows until nothing is
// left to do here: also what other submitters on this sweep have in hand, whose runs it goes on
// with if they are lost. Runs that SLURM has in its queue are left to it. On a terminal shows a
// live table, elsewhere a line for each change.
//
// INT, TERM and HUP: its runs are told to save, and what they end with is waited for; the second
// time they are told to end at once.
//
// Returns 0 if all runs are done or ended by the rule or are others'; 130 or 75 if it was told to
// end by INT or by TERM and HUP; else the exit code of the first failed run, in the sweep's order.
int run_sweep_here(const SweepDirectory& directory, const LocalSweepWish& wish);

}  // namespace anabranch
