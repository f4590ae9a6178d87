#include "core/base/philox.h"

#include <gtest/gtest.h>

namespace anabranch {
namespace {

// Known-answer vectors of the Random123 distribution for philox4x32-10.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones),
            (PhiloxBlock{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox(0x299F31D0A4093822U, 0x85A308D3243F6A88U, 0x0370734413198A2EU),
            (PhiloxBlock{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(Philox, NormalValuesHaveUnitVariance) {
  double sum = 0, squares = 0;
  constexpr int kPairs = 50000;
  for (uint64_t i = 0; i < kPairs; ++i) {
    const PhiloxBlock words = philox(7, i);
    for (const double v : normal_pair(words[0], words[1])) {
      sum += v;
      squares += v * v;
    }
  }
  EXPECT_NEAR(sum / (2 * kPairs), 0, 0.02);
  EXPECT_NEAR(squares / (2 * kPairs), 1, 0.02);
}

}  // namespace
}  // namespace anabranch
