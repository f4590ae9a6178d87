#include "core/base/crc32c.h"

#include <string>

#include <gtest/gtest.h>

namespace anabranch {
namespace {

// The check value of the CRC catalogue, and the vectors of RFC 3720, appendix B.4.
TEST(Crc32c, KnownValues) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32c(digits.data(), digits.size()), 0xE3069283U);
  const std::string zeros(32, '\0'), ones(32, '\xFF');
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8A9136AAU);
  EXPECT_EQ(crc32c(ones.data(), 32), 0x62A8AB43U);
}

TEST(Crc32c, ContinuesAtAnyCut) {
  std::string text;
  for (int i = 0; i < 100; ++i) text.push_back(static_cast<char>(i * 37));
  const uint32_t whole = crc32c(text.data(), text.size());
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = crc32c(text.data(), cut);
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, first), whole) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace anabranch
