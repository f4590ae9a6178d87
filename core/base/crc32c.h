// CRC-32C (Castagnoli), the checksum of shards and checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anabranch {

// The checksum of `size` bytes, continuing from `seed` (0 to start): crc32c(b, crc32c(a)) is that
// of a followed by b. Source: RFC 3720, appendix B.4.
uint32_t crc32c(const void* data, size_t size, uint32_t seed = 0);

}  // namespace anabranch
