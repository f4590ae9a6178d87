#include "runtime/config/nearest.h"

#include <gtest/gtest.h>

namespace anabranch {

namespace {

TEST(Nearest, Distances) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("width", "widht"), 1);  // neighbours swapped
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance(std::string(100000, 'a'), "b"), 128);
}

TEST(Nearest, FindsTheMeantWordOrNone) {
  const std::vector<std::string> words{"layers", "width", "warmup_steps", "lr"};
  EXPECT_EQ(nearest_word("layer", words), "layers");
  EXPECT_EQ(nearest_word("wdith", words), "width");
  EXPECT_EQ(nearest_word("warmup", words), "warmup_steps");
  EXPECT_EQ(nearest_word("l", words), "lr");
  EXPECT_EQ(nearest_word("zebra", words), "");
  EXPECT_EQ(nearest_word("", {}), "");
}

}  // namespace

}  // namespace anabranch
