#include "core/ops/grouped_linear.h"

#include "core/ops/linear.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using test::param;

// The second group is empty, the third has most rows.
const Groups kGroups{{0, 2, 2, 9, 10}};

TEST(GroupedLinear, EqualsTheEquation) {
  Param w = param("w", Tensor::of<double>({3, 1, 2}, {1, 2, 3, 4, 5, 6}));
  w.grad = test::full({3, 1, 2}, 7);  // stale
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({3, 2}, {1, 0, 2, 1, -1, 3}));
  const Var y = grouped_linear(x, w, {{0, 1, 1, 3}});
  EXPECT_EQ(test::values(y.value()), (std::vector<double>{1, 16, 13}));
  tape.backward(y, Tensor::of<double>({3, 1}, {2, 3, 5}));
  EXPECT_EQ(test::values(tape.take_grad(x)), (std::vector<double>{2, 4, 15, 18, 25, 30}));
  EXPECT_EQ(test::values(w.grad), (std::vector<double>{2, 0, 0, 0, 1, 18}));
}

TEST(GroupedLinear, GradientsAreThoseOfDifferences) {
  Param w = param("w", test::random({4, 5, 7}, 1));
  const auto op = [&](const Var& x) { return grouped_linear(x, w, kGroups); };
  test::expect_gradients(op, test::random({10, 7}, 2), {&w});
}

TEST(GroupedLinear, Accumulates) {
  Param w = param("w", test::random({4, 5, 7}, 1));
  const auto op = [&](const Var& x) { return grouped_linear(x, w, kGroups); };
  test::expect_accumulates(op, test::random({10, 7}, 2), {&w});
}

struct Results {
  Tensor y, dx, dw;
};

// From `width` elements of a row to `out`. If `hidden`, only the GPU knows the groups.
Results run(DType type, const Groups& groups, int64_t width, int64_t out = 33,
            const test::TestDevice& device = {"cpu", nullptr}, bool hidden = false) {
  const int64_t S = groups.rows(), E = groups.count();
  Param w = param("w", test::cast(test::random({E, out, width}, 1, DType::kBF16), type));
  Groups there = groups;
  if (hidden) {
    there.on_device = device.place(Tensor::of<int64_t>({E + 1}, groups.offsets));
    there.offsets.clear();
    there.row_bound = S;
  }
  const auto op = [&](const Var& x) { return grouped_linear(x, w, there); };
  const Tensor x = test::cast(test::random({S, width}, 2, DType::kBF16), type),
               dy = test::cast(test::random({S, out}, 3, DType::kBF16), type);
  const test::OpRun got = test::run_op(op, x, {&w}, dy, device);
  return {got.y, got.dx, got.dparams[0]};
}

void expect_near_float64(const Groups& groups, int64_t width, int64_t out,
                         const test::TestDevice& device) {
  const Results want = run(DType::kF64, groups, width, out);
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    if (type == DType::kF64 && !device.pool) continue;
    const Results got = run(type, groups, width, out, device);
    const test::Tolerance near = test::op_tolerance(type);
    const test::Tolerance sums{near.relative, near.absolute * 27};  // sqrt of 700 roundings
    test::expect_near(got.y, test::values(want.y), near, device.name + " y");
    test::expect_near(got.dx, test::values(want.dx), near, device.name + " dx");
    test::expect_near(got.dw, test::values(want.dw), sums, device.name + " dw");
    EXPECT_EQ(got.dw.dtype(), accumulator_of(type));
    EXPECT_EQ(got.dx.dtype(), type);
  }
}

TEST(GroupedLinear, LowerPrecisionIsNearFloat64) {
  for (const test::TestDevice& device : test::devices()) {
    for (const Groups& groups : {kGroups, Groups{{0, 0, 700}}, Groups{{0, 0, 0, 0, 1}}}) {
      expect_near_float64(groups, 70, 33, device);
    }
    // Of whole packs of elements, and more than a tile each way.
    expect_near_float64({{0, 130, 130, 200, 461}}, 200, 264, device);
  }
}

// More groups than a warp has lanes or a launch carries.
TEST(GroupedLinear, ManyGroups) {
  std::vector<int64_t> offsets{0};
  for (int64_t e = 0; e < 150; ++e) offsets.push_back(offsets.back() + (e * 7) % 5);
  for (const test::TestDevice& device : test::devices()) {
    expect_near_float64({offsets}, 24, 16, device);
  }
}

TEST(GroupedLinear, OffsetsThatOnlyTheGpuKnows) {
  const Groups groups{{0, 3, 3, 90, 91}};
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Results got = run(type, groups, 40, 24, device, true);
      const Results want = run(type, groups, 40, 24, device);
      EXPECT_TRUE(test::same_bytes(got.y, want.y));
      EXPECT_TRUE(test::same_bytes(got.dx, want.dx));
      EXPECT_TRUE(test::same_bytes(got.dw, want.dw));
    }
  }
}

// Of rows behind the last group nothing reaches a result, whatever they hold.
TEST(GroupedLinear, RowsBehindTheLastGroupDoNotCount) {
  constexpr int64_t kRows = 70, kUsed = 50, kWidth = 40, kOut = 24;
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Tensor x = test::random({kRows, kWidth}, 2, type), dy = test::random({kRows, kOut}, 3, type);
      for (Tensor* t : {&x, &dy}) {
        const int64_t n = t->dim(1);
        t->view(kUsed * n, {kRows - kUsed, n})
            .copy_from(test::full({kRows - kUsed, n}, std::nan(""), type));
      }
      Param w = param("w", test::random({2, kOut, kWidth}, 1, type));
      Groups groups{{}};
      groups.on_device = device.place(Tensor::of<int64_t>({3}, {0, 20, kUsed}));
      groups.row_bound = kRows;
      const auto op = [&](const Var& v) { return grouped_linear(v, w, groups); };
      const test::OpRun got = test::run_op(op, x, {&w}, dy, device);
      const auto few = [&](const Var& v) { return grouped_linear(v, w, {{0, 20, kUsed}}); };
      const test::OpRun want =
          test::run_op(few, x.view(0, {kUsed, kWidth}), {&w}, dy.view(0, {kUsed, kOut}), device);
      EXPECT_TRUE(test::same_bytes(got.y.view(0, {kUsed, kOut}), want.y));
      EXPECT_TRUE(test::same_bytes(got.dx.view(0, {kUsed, kWidth}), want.dx));
      EXPECT_TRUE(test::same_bytes(got.dparams[0], want.dparams[0]));
    }
  }
}

// Groups of more rows and columns than a tile, whole and not, and one of few rows.
TEST(GroupedLinear, ALargeGroupIsALinearMap) {
  constexpr int64_t kRows = 2500, kWidth = 1300;
  const Results got = run(DType::kF32, {{0, kRows, kRows + 3}}, kWidth);
  const Tensor x = test::random({kRows + 3, kWidth}, 2, DType::kBF16);
  const Tensor ws = test::random({2, 33, kWidth}, 1, DType::kBF16);
  Param w = param("w", test::cast(ws.view(33 * kWidth, {33, kWidth}), DType::kF32));
  const Var last = linear(test::cast(x.view(kRows * kWidth, {3, kWidth}), DType::kF32), w);
  Param first = param("w", test::cast(ws.view(0, {33, kWidth}), DType::kF32));
  const Var most = linear(test::cast(x.view(0, {kRows, kWidth}), DType::kF32), first);
  const auto near = test::op_tolerance(DType::kF32);
  test::expect_near(got.y.view(0, {kRows, 33}), test::values(most.value()), near, "most");
  test::expect_near(got.y.view(kRows * 33, {3, 33}), test::values(last.value()), near, "last");
}

TEST(GroupedLinear, DoesNotDependOnTheNumberOfThreads) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const Groups& groups : {Groups{{0, 3, 90, 90, 91, 200}}, Groups{{0, 0, 0, 2100}}}) {
      Param w = param("w", test::random({groups.count(), 33, 1300}, 1, type));
      const auto op = [&](const Var& x) { return grouped_linear(x, w, groups); };
      test::expect_threads_agree(op, test::random({groups.rows(), 1300}, 2, type), {&w});
    }
  }
}

// y and dx of rows [begin, end) of x, as a group of their own behind one of the first `before`.
struct Part {
  Tensor x, dy;
  Param& w;

  [[nodiscard]] Tensor rows(const Tensor& t, int64_t begin, int64_t end) const {
    return t.view(begin * t.dim(1), {end - begin, t.dim(1)});
  }

  [[nodiscard]] Tensor cut(const Tensor& t, int64_t begin, int64_t end, int64_t before) const {
    Tensor part = t.like({before + end - begin, t.dim(1)}, t.dtype(), "part");
    rows(part, 0, before).copy_from(rows(t, 0, before));
    rows(part, before, part.dim(0)).copy_from(rows(t, begin, end));
    return part;
  }

  [[nodiscard]] Results run(int64_t begin, int64_t end, int64_t before,
                            const test::TestDevice& device) const {
    const int64_t all = before + end - begin;
    const auto op = [&](const Var& v) { return grouped_linear(v, w, {{0, before, all}}); };
    const test::OpRun got =
        test::run_op(op, cut(x, begin, end, before), {&w}, cut(dy, begin, end, before), device);
    return {rows(got.y, before, all).clone(), rows(got.dx, before, all).clone(), {}};
  }
};

void expect_no_neighbours(const Part& part, const std::vector<std::pair<int64_t, int64_t>>& rows,
                          const test::TestDevice& device) {
  const Results whole = part.run(0, part.x.dim(0), 0, device);
  for (const auto& [begin, end] : rows) {
    for (const int64_t before : {0, 1, 40}) {
      const Results got = part.run(begin, end, before, device);
      EXPECT_TRUE(test::same_bytes(got.y, part.rows(whole.y, begin, end)))
          << begin << " to " << end << " " << name_of(part.x.dtype()) << device.name;
      EXPECT_TRUE(test::same_bytes(got.dx, part.rows(whole.dx, begin, end)))
          << begin << " to " << end << " " << name_of(part.x.dtype()) << device.name;
    }
  }
}

TEST(GroupedLinear, ARowDoesNotDependOnItsNeighbours) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    {
      // Sums that oneDNN cuts by the shape.
      constexpr int64_t kRows = 1100, kWidth = 1000, kOut = 1152;
      Param w = param("w", test::random({2, kOut, kWidth}, 1, type));
      expect_no_neighbours(
          {test::random({kRows, kWidth}, 2, type), test::random({kRows, kOut}, 3, type), w},
          {{0, 1}, {7, 8}, {1099, 1100}, {5, 20}, {5, 22}, {300, 400}, {3, 1060}},
          {"cpu", nullptr});
    }
    for (const test::TestDevice& device : test::devices()) {
      Param w = param("w", test::random({2, 40, 72}, 1, type));
      expect_no_neighbours({test::random({150, 72}, 2, type), test::random({150, 40}, 3, type), w},
                           {{0, 1}, {149, 150}, {5, 22}, {3, 140}}, device);
    }
  }
}

TEST(GroupedLinear, FewRowsAccumulate) {
  Param w = param("w", test::random({2, 40, 70}, 1, DType::kF32));
  const Tensor x = test::random({5, 70}, 2, DType::kF32);
  const Groups groups{{0, 2, 5}};
  const auto op = [&](const Var& v) { return grouped_linear(v, w, groups); };
  const test::OpRun once = test::run_op(op, x, {&w});
  Tape tape;
  const Var leaf = tape.input(x), y = op(leaf);
  tape.give(leaf, once.dx.clone());
  tape.backward(y, test::random(y.shape(), 99, y.dtype()));
  std::vector<double> want = test::values(once.dx);
  for (double& v : want) v *= 2;
  test::expect_near(tape.take_grad(leaf), want, test::op_tolerance(DType::kF32), "dx");
}

TEST(GroupedLinear, NoRowsAtAll) {
  for (const test::TestDevice& device : test::devices()) {
    const Results got = run(DType::kF32, {{0, 0, 0}}, 70, 33, device);
    EXPECT_EQ(got.y.shape(), (Shape{0, 33}));
    EXPECT_EQ(test::values(got.dw), std::vector<double>(2 * 33 * 70, 0.0));
  }
}

TEST(GroupedLinear, RefusesWhatDoesNotFit) {
  Param w = param("w", test::random({2, 5, 7}, 1));
  const Tensor x = test::random({3, 7}, 2);
  EXPECT_THROW(grouped_linear(x, w, {{0, 3}}), Error);
  EXPECT_THROW(grouped_linear(x, w, {{0, 1, 2}}), Error);
  EXPECT_THROW(grouped_linear(x, w, {{0, 4, 3}}), Error);
  EXPECT_THROW(grouped_linear(test::random({3, 6}, 2), w, {{0, 1, 3}}), Error);
}

}  // namespace
}  // namespace anabranch
