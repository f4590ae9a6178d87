// What the system says of this process.
#pragma once

#include <cstdint>

namespace anabranch {

// Resident memory of this process in bytes; 0 where the system does not tell.
[[nodiscard]] int64_t resident_bytes();

// The most it ever was; 0 where the system does not tell.
[[nodiscard]] int64_t resident_peak_bytes();

}  // namespace anabranch
