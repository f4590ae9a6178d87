// Signals as wishes to stop.
#pragma once

#include <atomic>
#include <thread>

#include "runtime/stop_request.h"

namespace anabranch {

// From its making on: USR1, TERM and HUP ask for a save and exit 75, INT for a save and exit 130; a
// second INT ends the process at once. A reader of our output that goes away does not end a run.
//
// A thread of its own waits for the signals, and they are blocked in the thread that makes this and
// in all that it starts later, so make it before any other. A handler would not do: oneDNN's
// generated products point the stack register into the heap, where a handler's frame would
// overwrite what lies below. The signals stay blocked afterwards: the exit code is settled then.
class StopSignals {
 public:
  explicit StopSignals(StopRequest& request);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::thread watcher_;
};

}  // namespace anabranch
