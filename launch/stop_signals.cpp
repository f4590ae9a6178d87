#include "launch/stop_signals.h"

#include <csignal>
#include <ctime>
#include <unistd.h>

#include "core/base/error.h"

namespace anabranch {
namespace {

sigset_t stop_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) sigaddset(&set, signal);
  return set;
}

// Raises what each signal asks for, until `over`.
void watch(StopRequest& request, const std::atomic<bool>& over) {
  constexpr timespec kLook{0, 50'000'000};  // how often it looks whether it is over
  const sigset_t set = stop_set();
  bool interrupted = false;
  while (!over) {
    const int signal = sigtimedwait(&set, nullptr, &kLook);
    if (signal < 0) continue;
    if (signal == SIGINT && interrupted) _exit(static_cast<int>(Fault::kInterrupted));
    interrupted = interrupted || signal == SIGINT;
    request.raise(signal == SIGINT ? StopKind::kInterrupt : StopKind::kRequeue);
  }
}

}  // namespace

StopSignals::StopSignals(StopRequest& request) {
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t set = stop_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  watcher_ = std::thread([this, &request] { watch(request, over_); });
}

StopSignals::~StopSignals() {
  over_ = true;
  watcher_.join();
}

}  // namespace anabranch
