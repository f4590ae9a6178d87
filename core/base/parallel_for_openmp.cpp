#include <algorithm>
#include <exception>
#include <mutex>

#include <omp.h>

#include "core/base/parallel_for.h"

namespace anabranch {

void parallel_for(int64_t n, int64_t grain, RangeBody body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t blocks = (n + grain - 1) / grain;
  const auto threads = static_cast<int>(std::min<int64_t>(blocks, omp_get_max_threads()));
  if (threads <= 1 || omp_in_parallel() != 0) return body(0, n);

  std::exception_ptr error;
  std::mutex lock;
#pragma omp parallel num_threads(threads)
  {
    const int64_t me = omp_get_thread_num(), team = omp_get_num_threads();
    const int64_t begin = blocks * me / team * grain;
    const int64_t end = std::min(blocks * (me + 1) / team * grain, n);
    try {
      if (begin < end) body(begin, end);
    } catch (...) {
      const std::scoped_lock hold(lock);
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void set_thread_count(int threads) { omp_set_num_threads(std::max(threads, 1)); }

int thread_count() { return omp_get_max_threads(); }

}  // namespace anabranch
