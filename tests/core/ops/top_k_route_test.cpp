#include "core/ops/top_k_route.h"

#include <array>
#include <limits>

#include "tests/support/op_checks.h"
#include "tests/support/plans.h"

namespace anabranch {
namespace {

using test::devices;
using test::ints;
using test::offsets;
using test::TestDevice;
using test::used;
using Ints = std::vector<int32_t>;
using Counts = std::vector<int64_t>;

const double kLog2 = std::log(2.0);

// Choices by falling logit: 1 0, 2 1, 1 2, 1 0.
Tensor logits() {
  return Tensor::of<double>({4, 3}, {0, kLog2, -9, -9, 0, kLog2, -9, kLog2, 0, 0, kLog2, -9});
}

TEST(TopKRoute, SortsSlotsByExpertThenRow) {
  for (const TestDevice& device : devices()) {
    const TopKRoute route = top_k_route(device.place(logits()), {});
    EXPECT_EQ(ints(route.expert), (Ints{1, 0, 2, 1, 1, 2, 1, 0}));
    EXPECT_EQ(offsets(route.plan.groups), (Counts{0, 2, 6, 8}));
    EXPECT_EQ(route.plan.groups.most_rows(), 8);
    EXPECT_EQ(used(route.plan, route.plan.source), (Ints{0, 3, 0, 1, 2, 3, 1, 2}));
    EXPECT_EQ(used(route.plan, route.plan.gate), (Ints{1, 7, 0, 3, 4, 6, 2, 5}));
    EXPECT_EQ(ints(route.slot), (Ints{2, 0, 6, 3, 4, 7, 5, 1}));
    EXPECT_EQ(test::demand(route), (Counts{2, 4, 2}));
    EXPECT_EQ(route.plan.rows, 4);
    const double a = 2.0 / 3, b = 1.0 / 3;
    test::expect_near(route.gates.value(), {a, b, a, b, a, b, a, b},
                      test::op_tolerance(DType::kF64), "gates");
    EXPECT_EQ(test::values(route.selected.value()),
              (std::vector<double>{0, 0, kLog2, 0, kLog2, kLog2, kLog2, 0}));
  }
}

TEST(TopKRoute, CapacityServesFirstChoicesFirst) {
  for (const TestDevice& device : devices()) {
    const Tensor s = device.place(logits());
    const TopKRoute route = top_k_route(s, {2, GateForm::kSelectedSoftmax, 2, 0});
    // Expert 1 serves rows 0 and 2; row 3's first choice and row 1's second find it full.
    EXPECT_EQ(ints(route.slot), (Ints{2, 0, 4, -1, 3, 5, -1, 1}));
    EXPECT_EQ(test::demand(route), (Counts{2, 4, 2}));
    const double a = 2.0 / 3, b = 1.0 / 3;
    test::expect_near(route.gates.value(), {a, b, a, 0, a, b, 0, b},
                      test::op_tolerance(DType::kF64), "gates");
    // With pools of two rows each pool has its own slots.
    const TopKRoute pooled = top_k_route(s, {2, GateForm::kSelectedSoftmax, 1, 2});
    EXPECT_EQ(ints(pooled.slot), (Ints{2, 0, 4, -1, 3, 5, -1, 1}));
    EXPECT_EQ(test::demand(pooled), (Counts{1, 2, 1, 1, 2, 1}));
  }
}

// Where a GPU's host does not know the groups, whoever asks it is told so.
TEST(TopKRoute, TheHostOfAGpuKnowsNoOffsets) {
  for (const TestDevice& device : devices()) {
    if (!device.pool) continue;
    const Groups groups = top_k_route(device.place(logits()), {}).plan.groups;
    EXPECT_EQ(groups.count(), 3);
    EXPECT_THROW((void)groups.begin(0), Error);
    EXPECT_THROW((void)groups.rows(), Error);
    EXPECT_NO_THROW(check_groups("test", groups, 3, 8));
    EXPECT_THROW(check_groups("test", groups, 3, 7), Error);
    EXPECT_THROW(check_groups("test", groups, 2, 8), Error);
  }
}

// Rows whose pool is larger drop what they drop in it.
TEST(TopKRoute, APartOfAPoolKnowsItsPlace) {
  const TopKRule rule{2, GateForm::kSelectedSoftmax, 2, 0};
  const Ints whole = ints(top_k_route(logits(), rule).slot);
  const Counts counts_of[] = {{0, 1, 1, 1, 1, 0}, {0, 2, 0, 1, 0, 1}};
  // All first choices are 1 2 1 1.
  const Counts before_of[] = {{0, 0, 0, 0, 3, 1}, {0, 1, 1, 1, 4, 1}};
  for (const TestDevice& device : devices()) {
    for (const size_t part : {size_t{0}, size_t{1}}) {
      TopKRule of_part = rule;
      of_part.before = [&](const Tensor& counts) {
        EXPECT_EQ(counts.shape(), (Shape{2, 3}));
        EXPECT_EQ(test::elements<int64_t>(counts), counts_of[part]);
        return device.place(Tensor::of<int64_t>({2, 3}, before_of[part]));
      };
      const Tensor rows = logits().view(static_cast<int64_t>(part) * 6, {2, 3});
      const Ints got = ints(top_k_route(device.place(rows), of_part).slot);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(got[i] < 0, whole[part * 4 + i] < 0) << "choice " << i << " of part " << part;
      }
    }
  }
}

TEST(TopKRoute, AsksWhatIsBeforeOnlyWithACapacity) {
  for (const TestDevice& device : devices()) {
    TopKRule rule{2, GateForm::kSelectedSoftmax, 0, 0};
    rule.before = [](const Tensor&) -> Tensor { throw Error(Fault::kInternal, "asked"); };
    EXPECT_NO_THROW(top_k_route(device.place(logits()), rule));
    rule.capacity = 2;
    EXPECT_THROW(top_k_route(device.place(logits()), rule), Error);
    rule.before = [](const Tensor& counts) { return counts; };
    rule.pool_rows = 2;
    EXPECT_THROW(top_k_route(device.place(logits()), rule), Error);
    rule.pool_rows = 0;
    rule.before = [](const Tensor& counts) { return counts.like({5}, DType::kI64, "few"); };
    EXPECT_THROW(top_k_route(device.place(logits()), rule), Error);
  }
}

TEST(TopKRoute, ProbabilityIsOfAllExperts) {
  for (const TestDevice& device : devices()) {
    const Tensor s = device.place(Tensor::of<double>({1, 3}, {kLog2, 0, 0}));
    const TopKRoute route = top_k_route(s, {1, GateForm::kProbability, 0, 0});
    test::expect_near(route.gates.value(), {0.5}, test::op_tolerance(DType::kF64), "gates");
  }
}

TEST(TopKRoute, TiesGoToTheLowestIndexAndNanIsSmallest) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const Tensor s =
      Tensor::of<float>({3, 4}, {1, 2, 2, 2, nan, -infinity, nan, -1, -0.0F, 0, nan, 0});
  for (const TestDevice& device : devices()) {
    const auto chosen = [&](int64_t k) {
      return ints(top_k_route(device.place(s), {k, GateForm::kSelectedSoftmax, 0, 0}).expert);
    };
    EXPECT_EQ(chosen(2), (Ints{1, 2, 3, 1, 0, 1}));
    EXPECT_EQ(chosen(4), (Ints{1, 2, 3, 0, 3, 1, 0, 2, 0, 1, 3, 2}));
  }
}

// Logits apart by more than the steps of the differences.
Tensor apart(int64_t rows, int64_t experts, uint32_t seed) {
  Tensor s = test::random({rows, experts}, seed);
  for (int64_t i = 0; i < s.count(); ++i) {
    s.data<double>()[i] =
        0.01 * static_cast<double>(i % experts) + std::round(s.data<double>()[i] * 9) / 9;
  }
  return s;
}

TEST(TopKRoute, GradientsAreThoseOfDifferences) {
  for (const GateForm form : {GateForm::kSelectedSoftmax, GateForm::kProbability}) {
    for (const int64_t capacity : {0, 2}) {
      for (const int64_t k : {1, 2, 5}) {
        const TopKRule rule{k, form, capacity, 0};
        const Tensor s = apart(7, 5, 1);
        test::expect_gradients([&](const Var& v) { return top_k_route(v, rule).gates; }, s, {});
        test::expect_gradients([&](const Var& v) { return top_k_route(v, rule).selected; }, s, {});
      }
    }
  }
}

// Gates and logits of the slots on a device as on the CPU, all integers equal.
void expect_as_on_cpu(const TestDevice& device, const Tensor& s, const TopKRule& rule) {
  struct Run {
    TopKRoute route;
    Tensor ds;
  };

  const auto run = [&](const TestDevice& on) {
    Tape tape;
    const Var leaf = tape.input(on.place(s));
    const TopKRoute route = top_k_route(leaf, rule);
    tape.give(route.selected, on.place(test::random(route.selected.shape(), 98, s.dtype())));
    tape.backward(route.gates, on.place(test::random(route.gates.shape(), 99, s.dtype())));
    return Run{route, tape.take_grad(leaf)};
  };
  const Run want = run({"cpu", nullptr}), got = run(device);
  const SlotPlan &a = want.route.plan, &b = got.route.plan;
  EXPECT_EQ(ints(got.route.expert), ints(want.route.expert));
  EXPECT_EQ(ints(got.route.slot), ints(want.route.slot));
  EXPECT_EQ(offsets(b.groups), offsets(a.groups));
  EXPECT_EQ(used(b, b.source), used(a, a.source));
  EXPECT_EQ(used(b, b.gate), used(a, a.gate));
  EXPECT_EQ(test::demand(got.route), test::demand(want.route));
  const auto near = test::op_tolerance(s.dtype());
  test::expect_near(got.route.gates.value(), test::values(want.route.gates.value()), near, "gates");
  test::expect_near(got.ds, test::values(want.ds), near, "dlogits");
  std::vector<double> selected = test::values(want.route.selected.value());
  selected.resize(static_cast<size_t>(b.source.count()));  // zeros behind the last
  EXPECT_EQ(test::values(got.route.selected.value()), selected);
}

TEST(TopKRoute, DevicesAgree) {
  for (const TestDevice& device : devices()) {
    for (const auto& [rows, experts, k] :
         {std::array<int64_t, 3>{901, 17, 3}, {1000, 40, 2}, {1400, 3, 3}, {12, 70, 33}}) {
      const Tensor s = test::random({rows, experts}, 1, DType::kF32);
      for (const GateForm form : {GateForm::kSelectedSoftmax, GateForm::kProbability}) {
        const int64_t fair = rows * k / experts;
        expect_as_on_cpu(device, s, {k, form, 0, 0});
        expect_as_on_cpu(device, s, {k, form, std::max<int64_t>(fair, 1), 0});
        const int64_t pool = rows % 4 == 0 ? rows / 4 : rows / 17;
        expect_as_on_cpu(device, s, {k, form, 0, pool});
        expect_as_on_cpu(device, s, {k, form, std::max<int64_t>(fair / 8, 1), pool});
        expect_as_on_cpu(device, s, {k, form, 2 * rows, 0});
      }
    }
  }
}

TEST(TopKRoute, BothOutputsAddUpAndAccumulate) {
  const Tensor s = apart(7, 5, 1);
  const auto gates = [](const Var& v) { return top_k_route(v, {}).gates; };
  const auto selected = [](const Var& v) { return top_k_route(v, {}).selected; };
  test::expect_accumulates(gates, s, {});
  test::expect_accumulates(selected, s, {});
  Tape tape;
  const Var leaf = tape.input(s);
  const TopKRoute route = top_k_route(leaf, {});
  tape.give(route.selected, test::random({14}, 99));
  tape.backward(route.gates, test::random({7, 2}, 99));
  std::vector<double> want = test::values(test::run_op(gates, s, {}).dx);
  const std::vector<double> other = test::values(test::run_op(selected, s, {}).dx);
  for (size_t i = 0; i < want.size(); ++i) want[i] += other[i];
  test::expect_near(tape.take_grad(leaf), want, test::op_tolerance(DType::kF64), "dlogits");
}

TEST(TopKRoute, FloatIsNearDouble) {
  const Tensor s = apart(301, 17, 1);
  const auto run = [&](DType type, const TestDevice& device) {
    return test::run_op([](const Var& v) { return top_k_route(v, {}).gates; }, test::cast(s, type),
                        {}, test::cast(test::random({301, 2}, 9, DType::kBF16), type), device);
  };
  const test::OpRun want = run(DType::kF64, devices().front());
  for (const TestDevice& device : devices()) {
    const test::OpRun got = run(DType::kF32, device);
    test::expect_near(got.y, test::values(want.y), test::op_tolerance(DType::kF32), "gates");
    test::expect_near(got.dx, test::values(want.dx), test::op_tolerance(DType::kF32), "dlogits");
  }
}

TEST(TopKRoute, ThreadsAgree) {
  const Tensor s = test::random({701, 17}, 1, DType::kF32);
  test::expect_threads_agree([](const Var& v) { return top_k_route(v, {}).gates; }, s, {});
}

TEST(TopKRoute, OneExpertAndNoRows) {
  for (const TestDevice& device : devices()) {
    const TopKRoute one =
        top_k_route(device.place(test::random({3, 1}, 1)), {1, GateForm::kSelectedSoftmax, 0, 0});
    EXPECT_EQ(test::values(one.gates.value()), (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(offsets(one.plan.groups), (Counts{0, 3}));
    for (const int64_t capacity : {0, 2}) {
      const TopKRule rule{2, GateForm::kSelectedSoftmax, capacity, 0};
      const TopKRoute none = top_k_route(device.place(Tensor({0, 4}, DType::kF32)), rule);
      EXPECT_EQ(offsets(none.plan.groups), (Counts{0, 0, 0, 0, 0}));
    }
  }
}

TEST(TopKRoute, RefusesWhatDoesNotFit) {
  const Tensor s = test::random({4, 3}, 1);
  EXPECT_THROW(top_k_route(s, {4}), Error);
  EXPECT_THROW(top_k_route(s, {0}), Error);
  EXPECT_THROW(top_k_route(s, {2, GateForm::kProbability, 1, 3}), Error);
  EXPECT_THROW(top_k_route(test::random({4, 3}, 1, DType::kBF16), {2}), Error);
}

}  // namespace
}  // namespace anabranch
