#include "core/base/tree_sum.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace anabranch {
namespace {

// How the terms first, first + 1, .. are added, in words.
std::string added(int first, int terms) {
  TreeSum tree;
  std::vector<std::string> buffers(TreeSum::buffers(static_cast<size_t>(terms)));
  const auto add = [&](size_t i) {
    buffers.at(i) = join("(", buffers.at(i), "+", buffers.at(i + 1), ")");
  };
  for (int i = 0; i < terms; ++i) {
    buffers.at(tree.top()) = std::to_string(first + i);
    tree.push(add);
  }
  tree.finish(add);
  return buffers.front();
}

TEST(TreeSum, IsBalanced) {
  EXPECT_EQ(added(0, 1), "0");
  EXPECT_EQ(added(0, 2), "(0+1)");
  EXPECT_EQ(added(0, 3), "((0+1)+2)");
  EXPECT_EQ(added(0, 4), "((0+1)+(2+3))");
  EXPECT_EQ(added(0, 6), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(added(0, 7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(TreeSum, EqualBlocksArePartsOfIt) {
  EXPECT_EQ(added(0, 8), join("(", added(0, 4), "+", added(4, 4), ")"));
  EXPECT_EQ(added(0, 16), join("(", added(0, 8), "+", added(8, 8), ")"));
}

}  // namespace
}  // namespace anabranch
