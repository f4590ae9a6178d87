#include "parallel/copy_region.h"

#include <algorithm>
#include <utility>

#include "core/ops/columns.h"
#include "core/ops/fold_streams.h"
#include "core/ops/linear.h"
#include "core/ops/mix_streams.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kRows = 6, kWidth = 5;
constexpr test::Tolerance kNear{1e-12, 1e-13};

Tensor rows_of(const Tensor& all, int rank) {
  return all.view(rank * kRows * all.dim(1), {kRows, all.dim(1)}).clone();
}

// A map of its own for each copy that is here.
std::vector<Param> maps_of(const CopyRegion& region) {
  std::vector<Param> maps;
  for (int64_t k = region.first(); k < region.first() + region.count(); ++k) {
    const auto seed = static_cast<uint32_t>(10 + k);
    maps.push_back(test::param("map", test::random({kWidth, kWidth}, seed)));
  }
  return maps;
}

// The copies of x, each mapped, side by side: what merging sees.
Var side_by_side(const CopyRegion& region, const Var& x, std::vector<Param>& maps, int64_t copies) {
  std::vector<Var> made;
  const std::vector<Var> xs = region.spread(x);
  for (size_t k = 0; k < maps.size(); ++k) made.push_back(linear(xs[k], maps[k]));
  const Var by_copy = unfold_streams(join_columns(made), std::ssize(made));
  return fold_streams(region.come_home(by_copy), copies);
}

// Ranks and copies.
class CopiesOverRanks : public testing::TestWithParam<std::pair<int, int64_t>> {
 protected:
  const int ranks_ = GetParam().first;
  const int64_t copies_ = GetParam().second;
  const Tensor x_ = test::random({ranks_ * kRows, kWidth}, 3);
  const Tensor dy_ = test::random({ranks_ * kRows, copies_* kWidth}, 5);
};

TEST_P(CopiesOverRanks, AreThoseOfOne) {
  const CopyRegion alone({}, copies_);
  std::vector<Param> all = maps_of(alone);
  Tape tape;
  const Var x = tape.input(x_);
  const Var y = side_by_side(alone, x, all, copies_);
  tape.backward(y, dy_);
  const Tensor dx = tape.take_grad(x);
  run_on_threads(ranks_, [&](Group& world) {
    const CopyRegion region(Regions{&world}, copies_);
    std::vector<Param> mine = maps_of(region);
    Tape t;
    const Var rows = t.input(rows_of(x_, world.rank()));
    const Var home = side_by_side(region, rows, mine, copies_);
    test::expect_near(home.value(), test::values(rows_of(y.value(), world.rank())), kNear, "y");
    t.backward(home, rows_of(dy_, world.rank()));
    test::expect_near(t.take_grad(rows), test::values(rows_of(dx, world.rank())), kNear, "dx");
    for (size_t k = 0; k < mine.size(); ++k) {  // whole, with nothing left to sum
      const Tensor& want = all[static_cast<size_t>(region.first()) + k].grad;
      test::expect_near(mine[k].grad, test::values(want), kNear, "dw");
    }
  });
}

// Bytes of the larger buffer of each collective, of which a rank receives (S - 1) / S where copies
// come out even.
TEST_P(CopiesOverRanks, SendWhatTheTableSays) {
  run_on_threads(ranks_, [&](Group& world) {
    const CopyRegion region(Regions{&world}, copies_);
    Tape t;
    const Var x = t.input(test::random({kRows, kWidth}, 1, DType::kBF16));
    const CommStats before = world.stats();
    const Var y = region.come_home(unfold_streams(join_columns(region.spread(x)), region.count()));
    EXPECT_EQ(y.shape(), Shape({copies_ * kRows, kWidth}));
    t.backward(y, test::random(y.shape(), 2, DType::kBF16));
    world.barrier();  // what came before has been counted
    const CommStats after = world.stats();
    const auto bytes = [&](CollectiveKind kind) {
      return after.of(kind).bytes - before.of(kind).bytes;
    };
    const int64_t group_rows = ranks_ * kRows;
    EXPECT_EQ(bytes(CollectiveKind::kAllGather), group_rows * kWidth * 2);
    EXPECT_EQ(bytes(CollectiveKind::kReduceScatterSum), group_rows * kWidth * 4);
    const int64_t larger = std::max(copies_, region.count() * ranks_);
    EXPECT_EQ(bytes(CollectiveKind::kAllToAll), 2 * larger * kRows * kWidth * 2);
    EXPECT_EQ(bytes(CollectiveKind::kAllReduceSum), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, CopiesOverRanks,
                         testing::Values(std::pair{2, 2}, std::pair{2, 3}, std::pair{3, 5},
                                         std::pair{4, 4}, std::pair{4, 8}));

// Gradients of copies are bf16, and their sum is rounded once.
TEST(CopyRegion, SumsTheGradientsOfCopiesWide) {
  constexpr double kHalfUlp = 0x1p-8;  // of bf16 at 1
  run_on_threads(2, [&](Group& world) {
    const CopyRegion region(Regions{&world}, 3);
    Tape t;
    const Var x = t.input(test::full({1, 1}, 1, DType::kBF16));
    const Var y = join_columns(region.spread(x));
    Tensor dy = test::full(y.shape(), kHalfUlp, DType::kBF16);
    if (world.rank() == 0) {
      for (const int64_t row : {0, 1}) dy.data<Bf16>()[row * 2] = Bf16(1.0F);
    }
    t.backward(y, dy);
    EXPECT_EQ(test::values(t.take_grad(x)), std::vector<double>{1 + 2 * kHalfUlp});
  });
}

TEST(CopyRegion, SplitsWhatIsOfItsCopies) {
  run_on_threads(2, [](Group& world) {
    const CopyRegion region(Regions{&world}, 3);
    EXPECT_EQ(region.first(), world.rank() == 0 ? 0 : 2);
    EXPECT_EQ(region.count(), world.rank() == 0 ? 2 : 1);
    Param of_all("prefixes", {3, 4}, Init::constant(0)), own("map", {4, 4}, Init::constant(0));
    region.split(of_all);
    region.own(own);
    EXPECT_EQ(of_all.shape, Shape({region.count(), 4}));
    EXPECT_EQ(of_all.slice_begin, region.first());
    EXPECT_EQ(own.shape, Shape({4, 4}));
    for (const Param* w : {&of_all, &own}) EXPECT_EQ(w->reduce, ReduceGroup::kData);
  });
}

TEST(CopyRegion, AloneAddsNothing) {
  const CopyRegion region({}, 3);
  EXPECT_TRUE(region.alone());
  const Tensor x = test::random({2, 2}, 1);
  EXPECT_EQ(region.rows_of_all(x).raw(), x.raw());
  const std::vector<Var> copies = region.spread(x);
  ASSERT_EQ(copies.size(), 3U);
  for (const Var& copy : copies) EXPECT_EQ(copy.value().raw(), x.raw());
  EXPECT_EQ(region.come_home(x).value().raw(), x.raw());
  Param w("w", {3, 2}, Init::constant(0));
  region.split(w);
  region.own(w);
  EXPECT_EQ(w.shape, w.global_shape);
  EXPECT_EQ(w.reduce, ReduceGroup::kAll);
}

// They would come out otherwise than on one rank, and nothing would show it.
TEST(CopyRegion, OfARunOfAnyLayoutIsAlone) {
  run_on_threads(2, [](Group& world) {
    EXPECT_THROW(CopyRegion({.model = &world, .any_layout = true}, 2), Error);
  });
  EXPECT_TRUE(CopyRegion({.any_layout = true}, 2).alone());
}

TEST(CopyRegion, NeedsACopyForEachRank) {
  run_on_threads(2, [](Group& world) { EXPECT_THROW(CopyRegion(Regions{&world}, 1), Error); });
}

}  // namespace
}  // namespace anabranch
