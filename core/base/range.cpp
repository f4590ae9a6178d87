#include "core/base/range.h"

#include "core/base/build.h"

namespace anabranch {

Range::Range(const char* name) : Range(name, -1) {}

Range::Range([[maybe_unused]] const char* name, [[maybe_unused]] int64_t number) {
  if constexpr (build::kCuda) cuda::begin_range(name, number);
}

Range::~Range() {
  if constexpr (build::kCuda) cuda::end_range();
}

}  // namespace anabranch
