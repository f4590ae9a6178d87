#include "parallel/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anabranch {
namespace {

TEST(Topology, CoresAreSharedOut) {
  const std::vector<int> four{0, 1, 2, 3};
  EXPECT_EQ(share_of_cores({four}, 0), 4);
  EXPECT_EQ(share_of_cores({four, four}, 1), 2);
  EXPECT_EQ(share_of_cores({four, four, four}, 0), 2);
  EXPECT_EQ(share_of_cores({four, four, four}, 2), 1);
  EXPECT_EQ(share_of_cores({{0}, {0}, {0}}, 2), 1);   // more ranks than cores
  EXPECT_EQ(share_of_cores({{0, 1}, {2, 3}}, 1), 2);  // bound by mpirun: nothing to share
  EXPECT_FALSE(allowed_cores().empty());
}

TEST(Topology, ThreadRanksAreOnOneHost) {
  run_on_threads(3, [](Group& g) {
    const Topology t = find_topology(g);
    EXPECT_EQ(t.local_rank, g.rank());
    EXPECT_EQ(t.local_size, 3);
    EXPECT_EQ(t.hosts.size(), 3U);
    EXPECT_GE(t.threads, 1);
  });
}

TEST(Topology, TextsOfAnyLengthAreGathered) {
  run_on_threads(4, [](Group& g) {
    const auto text = [](int r) { return std::string(static_cast<size_t>(r) * 100, 'x'); };
    const std::vector<std::string> all = gather_text(g, text(g.rank()));
    for (int r = 0; r < 4; ++r) EXPECT_EQ(all[static_cast<size_t>(r)], text(r));
  });
}

TEST(Topology, ARankThatDiffersIsNamedOnEveryRank) {
  run_on_threads(3, [](Group& g) {
    require_same(g, "the build", "v1");
    try {
      require_same(g, "the build", g.rank() == 2 ? "v2" : "v1");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kConfig);
      EXPECT_THAT(error.what(), testing::HasSubstr("has 'v1' but rank 2"));
      EXPECT_THAT(error.what(), testing::HasSubstr("'v2'"));
    }
  });
}

TEST(Topology, OfLongTextsTheLineThatDiffersIsShown) {
  run_on_threads(3, [](Group& g) {
    const auto text = [&](const std::string& lr) {
      return std::string(1000, 'a') + "\n  lr: " + lr + "\n" + std::string(1000, 'b');
    };
    try {
      require_same(g, "the configuration", text(g.rank() == 1 ? "0.1" : "0.2"));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("has 'lr: 0.2' but rank 1 on "));
      EXPECT_THAT(error.what(), testing::HasSubstr("has 'lr: 0.1'; start every rank"));
    }
    try {
      require_same(g, "the data set", g.rank() == 2 ? "a\nb" : "a");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("has 'nothing more' but rank 2 on "));
    }
  });
}

}  // namespace
}  // namespace anabranch
