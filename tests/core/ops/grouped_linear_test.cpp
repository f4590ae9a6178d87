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

Results run(DType type, const Groups& groups, int64_t width) {
  const int64_t S = groups.rows(), E = groups.count();
  Param w = param("w", test::cast(test::random({E, 33, width}, 1, DType::kBF16), type));
  Tape tape;
  const Var x = tape.input(test::cast(test::random({S, width}, 2, DType::kBF16), type));
  const Var y = grouped_linear(x, w, groups);
  tape.backward(y, test::cast(test::random({S, 33}, 3, DType::kBF16), type));
  return {y.value(), tape.take_grad(x), w.grad};
}

TEST(GroupedLinear, LowerPrecisionIsNearFloat64) {
  for (const Groups& groups : {kGroups, Groups{{0, 0, 700}}, Groups{{0, 0, 0, 0, 1}}}) {
    const Results want = run(DType::kF64, groups, 70);
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Results got = run(type, groups, 70);
      const test::Tolerance near = test::op_tolerance(type);
      const test::Tolerance sums{near.relative, near.absolute * 27};  // sqrt of 700 roundings
      test::expect_near(got.y, test::values(want.y), near, "y");
      test::expect_near(got.dx, test::values(want.dx), near, "dx");
      test::expect_near(got.dw, test::values(want.dw), sums, "dw");
      EXPECT_EQ(got.dw.dtype(), DType::kF32);
      EXPECT_EQ(got.dx.dtype(), type);
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

  [[nodiscard]] Results run(int64_t begin, int64_t end, int64_t before) const {
    const int64_t all = before + end - begin;
    const auto op = [&](const Var& v) { return grouped_linear(v, w, {{0, before, all}}); };
    const test::OpRun got =
        test::run_op(op, cut(x, begin, end, before), {&w}, cut(dy, begin, end, before));
    return {rows(got.y, before, all).clone(), rows(got.dx, before, all).clone(), {}};
  }
};

TEST(GroupedLinear, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 1100, kWidth = 1000, kOut = 1152;  // sums that oneDNN cuts by the shape
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    Param w = param("w", test::random({2, kOut, kWidth}, 1, type));
    const Part part{test::random({kRows, kWidth}, 2, type), test::random({kRows, kOut}, 3, type),
                    w};
    const Results whole = part.run(0, kRows, 0);
    for (const auto& [begin, end] :
         {std::pair(0, 1), {7, 8}, {1099, 1100}, {5, 20}, {5, 22}, {300, 400}, {3, 1060}}) {
      for (const int64_t before : {0, 1, 40}) {
        const Results got = part.run(begin, end, before);
        EXPECT_TRUE(test::same_bytes(got.y, part.rows(whole.y, begin, end)))
            << begin << " to " << end << " " << name_of(type);
        EXPECT_TRUE(test::same_bytes(got.dx, part.rows(whole.dx, begin, end)))
            << begin << " to " << end << " " << name_of(type);
      }
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
  const Results got = run(DType::kF32, {{0, 0, 0}}, 70);
  EXPECT_EQ(got.y.shape(), (Shape{0, 33}));
  EXPECT_EQ(test::values(got.dw), std::vector<double>(2 * 33 * 70, 0.0));
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
