// A sweep, followed on the standard output.
#pragma once

namespace anabranch {

class SweepBoard;

// Until INT or TERM: on a terminal the table, drawn anew; elsewhere a line for each run whose state
// has changed, until all runs are over.
//
//   steer  applies the sweep's rule too, and ends when nobody has a run in hand any more
void watch_sweep(SweepBoard& board, double every, bool steer = false);

}  // namespace anabranch
