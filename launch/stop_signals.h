// Signals as wishes to stop.
#pragma once

#include "runtime/stop_request.h"

namespace anabranch {

// While it lives: USR1, TERM and HUP ask for a save and exit 75, INT for a save and exit 130; a
// second INT ends the process at once. Afterwards the first three change nothing any more: the exit
// code is settled. A reader of our output that goes away does not end a run. At most one at a time
// in a process.
class StopSignals {
 public:
  explicit StopSignals(StopRequest& request);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

}  // namespace anabranch
