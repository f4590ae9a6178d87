#include "runtime/config/number.h"

#include <gtest/gtest.h>

namespace anabranch {

namespace {

TEST(Number, RoundTrips) {
  for (const double value : {0.0, 0.1, 6e-4, 1e-300, 1.0 / 3.0, 123456789.125, -2.5}) {
    double back = 1;
    ASSERT_TRUE(parse_number(number_text(value), back)) << number_text(value);
    EXPECT_EQ(back, value);
  }
}

TEST(Number, ReadsAsPeopleWrite) {
  EXPECT_EQ(number_text(6e-4), "0.0006");
  EXPECT_EQ(number_text(1e-5), "1e-5");
  EXPECT_EQ(number_text(1e22), "1e22");
  EXPECT_EQ(number_text(1.5e-10), "1.5e-10");
  EXPECT_EQ(number_text(25), "25");
}

TEST(Number, WholeNumbers) {
  int64_t value = 7;
  EXPECT_TRUE(parse_number("-12", value));
  EXPECT_EQ(value, -12);
  EXPECT_TRUE(parse_number("1e9", value));
  EXPECT_EQ(value, 1000000000);
  EXPECT_TRUE(parse_number("2.5e3", value));
  EXPECT_EQ(value, 2500);
  for (const char* bad : {"", "1.5", "1e99", "99999999999999999999", "0x10", "1 ", " 1", "1_000",
                          "nan", "inf", "ten", "--1", "+-1"}) {
    EXPECT_FALSE(parse_number(bad, value)) << bad;
  }
  EXPECT_EQ(value, 2500);  // untouched
}

TEST(Number, RefusesWhatIsNotFinite) {
  double value = 7;
  for (const char* bad : {"", "nan", "inf", "-inf", "1e999", "1,5", "+-1", "1e"}) {
    EXPECT_FALSE(parse_number(bad, value)) << bad;
  }
  EXPECT_EQ(value, 7);
}

TEST(Counted, TakesAnSUnlessOne) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
}

}  // namespace

}  // namespace anabranch
