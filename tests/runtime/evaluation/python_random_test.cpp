// Values of CPython 3.11's `random`.
#include "runtime/evaluation/python_random.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/evaluation/core_prompts.h"

namespace anabranch {
namespace {

using testing::ElementsAre;

TEST(PythonRandom, GivesCPythonsWords) {
  PythonRandom a(1337), b(1234), wide(0x123456789abcdefULL);
  EXPECT_EQ(a.next(), 2653228291U);
  EXPECT_EQ(a.next(), 3975144315U);
  EXPECT_EQ(a.next(), 2290358181U);
  EXPECT_EQ(a.next(), 3048911309U);
  EXPECT_EQ(b.next(), 4150886329U);
  // random.Random(0x123456789abcdef).getrandbits(32); and the 1000th, after the state was renewed
  EXPECT_EQ(wide.next(), 3851240871U);
  for (int i = 0; i < 998; ++i) (void)wide.next();
  EXPECT_EQ(wide.next(), 1068068003U);
}

TEST(PythonRandom, ShufflesAsCPython) {
  std::vector<int> twelve(12), five_hundred(500);
  std::iota(twelve.begin(), twelve.end(), 0);
  std::iota(five_hundred.begin(), five_hundred.end(), 0);
  PythonRandom(1337).shuffle(twelve);
  EXPECT_THAT(twelve, ElementsAre(6, 0, 1, 4, 10, 7, 3, 11, 2, 5, 8, 9));
  PythonRandom(1337).shuffle(five_hundred);
  five_hundred.resize(10);
  EXPECT_THAT(five_hundred, ElementsAre(64, 427, 144, 443, 171, 97, 381, 91, 70, 351));
}

TEST(PythonRandom, ChoosesTheShotsThatCPythonChooses) {
  EXPECT_THAT(core_shots(0, 2376, 10),
              ElementsAre(1806, 479, 31, 372, 144, 344, 404, 1453, 970, 72));
  EXPECT_THAT(core_shots(1, 2376, 10),
              ElementsAre(1740, 2194, 1926, 1603, 611, 1430, 1776, 873, 405, 1685));
  EXPECT_THAT(core_shots(7, 32, 10), ElementsAre(20, 31, 16, 25, 6, 10, 9, 27, 23, 29));
  EXPECT_THAT(core_shots(31, 32, 10), ElementsAre(0, 3, 18, 22, 11, 25, 10, 13, 1, 16));
  EXPECT_THAT(core_shots(0, 230, 3), ElementsAre(200, 113, 30));
  EXPECT_THAT(core_shots(0, 230, 0), ElementsAre());
}

}  // namespace
}  // namespace anabranch
