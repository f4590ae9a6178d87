// The one way a loop is spread over a rank's threads.
//
// Built on OpenMP, or on a plain thread pool where a sanitizer cannot see into OpenMP.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace anabranch {

// A reference to a callable `void(int64_t begin, int64_t end)`; costs no allocation.
class RangeBody {
 public:
  template <class F>
  RangeBody(const F& f)  // NOLINT(google-explicit-constructor): made at every call of parallel_for
      : object_(std::addressof(f)), call_([](const void* object, int64_t begin, int64_t end) {
          (*static_cast<const F*>(object))(begin, end);
        }) {}

  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Runs `body` over [0, n) in pieces of whole multiples of `grain` (the last may be shorter).
//
//   n      number of items
//   grain  items that are worth a thread's while, and the unit of the split
//
// Which thread runs a piece is not fixed, so a piece may only write what is its own; a sum over
// pieces is made per `grain` block and combined in block order, then it does not depend on the
// number of threads. The first exception of a piece is rethrown on the caller's thread.
void parallel_for(int64_t n, int64_t grain, RangeBody body);

// Threads that parallel_for and the matrix library use when called from this thread.
void set_thread_count(int threads);
[[nodiscard]] int thread_count();

// Leaves work of this thread to it alone for as long as it lives.
class OneThread {
 public:
  OneThread() { set_thread_count(1); }

  ~OneThread() { set_thread_count(before_); }

  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = thread_count();
};

}  // namespace anabranch
