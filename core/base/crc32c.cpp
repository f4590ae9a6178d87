#include "core/base/crc32c.h"

#include <array>
#include <cstring>

namespace anabranch {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

constexpr Table make_table() {
  Table table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    table[0][i] = crc;
  }
  for (size_t t = 1; t < 8; ++t) {
    for (size_t i = 0; i < 256; ++i) {
      table[t][i] = (table[t - 1][i] >> 8U) ^ table[0][table[t - 1][i] & 0xFFU];
    }
  }
  return table;
}

constexpr Table kTable = make_table();

uint32_t by_table(uint32_t crc, const unsigned char* p, size_t size) {
  for (; size >= 8; p += 8, size -= 8) {  // eight bytes a step
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTable[7 - i][(word >> (8 * i)) & 0xFFU];
  }
  for (; size > 0; ++p, --size) crc = (crc >> 8U) ^ kTable[0][(crc ^ *p) & 0xFFU];
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc, const unsigned char* p,
                                                          size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; size > 0; ++p, --size) narrow = __builtin_ia32_crc32qi(narrow, *p);
  return narrow;
}

}  // namespace

uint32_t crc32c(const void* data, size_t size, uint32_t seed) {
  const auto* p = static_cast<const unsigned char*>(data);
  const uint32_t crc = __builtin_cpu_supports("sse4.2") != 0 ? by_instruction(~seed, p, size)
                                                             : by_table(~seed, p, size);
  return ~crc;
}

}  // namespace anabranch
