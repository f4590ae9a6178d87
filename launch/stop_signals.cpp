#include "launch/stop_signals.h"

#include <atomic>
#include <csignal>

namespace anabranch {
namespace {

// A handler has no other way to what it writes.
std::atomic<StopRequest*> asked{nullptr};  // NOLINT(cppcoreguidelines-avoid-non-const-global-*)

void on_signal(int signal) {
  StopRequest* request = asked.load();
  if (request == nullptr) return;
  request->raise(signal == SIGINT ? StopKind::kInterrupt : StopKind::kRequeue);
  if (signal == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals(StopRequest& request) {
  asked = &request;
  std::signal(SIGPIPE, SIG_IGN);
  for (const int signal : {SIGUSR1, SIGTERM, SIGHUP, SIGINT}) {
    struct sigaction action {};

    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (const int signal : {SIGUSR1, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  std::signal(SIGINT, SIG_DFL);
  asked = nullptr;
}

}  // namespace anabranch
