// For ThreadSanitizer: threads it can see, started anew for each loop.
#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/parallel_for.h"

namespace anabranch {
namespace {

// Per calling thread, as in OpenMP: ranks that are threads must not share it.
int& threads_of_this_thread() {
  thread_local int threads = 1;
  return threads;
}

}  // namespace

void parallel_for(int64_t n, int64_t grain, RangeBody body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t blocks = (n + grain - 1) / grain;
  const int64_t team = std::min<int64_t>(blocks, thread_count());
  if (team <= 1) return body(0, n);

  std::exception_ptr error;
  std::mutex lock;
  std::vector<std::jthread> threads;
  for (int64_t me = 0; me < team; ++me) {
    threads.emplace_back([&, me] {
      try {
        body(blocks * me / team * grain, std::min(blocks * (me + 1) / team * grain, n));
      } catch (...) {
        const std::scoped_lock hold(lock);
        if (!error) error = std::current_exception();
      }
    });
  }
  threads.clear();  // joins
  if (error) std::rethrow_exception(error);
}

void set_thread_count(int threads) { threads_of_this_thread() = std::max(threads, 1); }

int thread_count() { return threads_of_this_thread(); }

}  // namespace anabranch
