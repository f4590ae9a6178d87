// A thread that no signal is delivered to.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace anabranch {

// Starts `f` with all signals blocked, so that handlers run on threads that expect them.
template <class F>
std::thread quiet_thread(F&& f) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<F>(f));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace anabranch
