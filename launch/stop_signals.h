// Signals as wishes to stop.
#pragma once

#include "runtime/stop_request.h"

namespace anabranch {

// While it lives: USR1 and TERM ask for a save and exit 75, INT for a save and exit 130. A second
// INT ends the process at once, as without this. At most one at a time in a process.
class StopSignals {
 public:
  explicit StopSignals(StopRequest& request);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

}  // namespace anabranch
