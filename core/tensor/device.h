// Where a tensor's memory is.
#pragma once

#include <cstdint>

namespace anabranch {

struct Device {
  enum class Kind : uint8_t { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;  // which GPU; 0 on the CPU

  [[nodiscard]] constexpr bool is_cpu() const { return kind == Kind::kCpu; }

  [[nodiscard]] constexpr bool is_cuda() const { return kind == Kind::kCuda; }

  bool operator==(const Device&) const = default;
};

}  // namespace anabranch
