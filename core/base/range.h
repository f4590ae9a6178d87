// Named ranges of time for the tools that show what a GPU does (Nsight Systems), beside its own
// work: steps, micro-batches, layers, collectives. Without such a tool a range is one test of a
// pointer, in a build without CUDA an empty function.
#pragma once

#include <cstdint>

namespace anabranch {

// A range of the calling thread, from construction to destruction; ranges nest.
class Range {
 public:
  // `name` must live as long as the range.
  explicit Range(const char* name);

  // Shown as "layer 3".
  Range(const char* name, int64_t number);

  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

namespace cuda {

// Begins a range; `number` below 0 is not shown.
void begin_range(const char* name, int64_t number);
void end_range();

}  // namespace cuda

}  // namespace anabranch
