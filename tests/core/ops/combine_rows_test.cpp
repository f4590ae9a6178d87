#include "core/ops/combine_rows.h"

#include "core/ops/gather_rows.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

// Five slots of four rows; row 2 has none. Gates are [4, 2], of which three have no slot.
SlotPlan plan() {
  return {4,
          {{0, 2, 2, 5}},
          Tensor::of<int32_t>({5}, {0, 3, 0, 1, 3}),
          Tensor::of<int32_t>({5}, {0, 7, 1, 2, 6})};
}

// The same where `v` is.
SlotPlan beside(const Var& v, SlotPlan p) {
  p.source = p.source.copy_in(v.value().pool());
  p.gate = p.gate.copy_in(v.value().pool());
  return p;
}

Tensor beside(const Var& v, const Tensor& t) { return t.copy_in(v.value().pool()); }

TEST(CombineRows, EqualsTheEquation) {
  for (const test::TestDevice& device : test::devices()) {
    Tape tape;
    const Var z = tape.input(device.place(Tensor::of<double>({5, 1}, {1, 2, 3, 4, 5})));
    const Var gates =
        tape.input(device.place(Tensor::of<double>({4, 2}, {2, 3, 5, 7, 11, 13, 17, 19})));
    const Var y = combine_rows(z, gates, beside(z, plan()));
    EXPECT_EQ(test::values(y.value()), (std::vector<double>{11, 20, 0, 123}));
    tape.backward(y, device.place(Tensor::of<double>({4, 1}, {1, 10, 100, 1000})));
    EXPECT_EQ(test::values(tape.take_grad(z)), (std::vector<double>{2, 19000, 3, 50, 17000}));
    EXPECT_EQ(test::values(tape.take_grad(gates)),
              (std::vector<double>{1, 3, 40, 0, 0, 0, 5000, 2000}));
  }
}

// Rows and gradients of unused slots, which a GPU's plan may have, reach nothing.
TEST(CombineRows, UnusedSlotsOfAGpu) {
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    const double nan = std::nan("");
    Tape tape;
    const Var z = tape.input(device.place(Tensor::of<double>({4, 1}, {2, 3, nan, nan})));
    const Var gates = tape.input(device.place(Tensor::of<double>({3}, {5, 7, 11})));
    const SlotPlan some{2,
                        {{0, 4}},
                        Tensor::of<int32_t>({4}, {1, 0, -1, -1}),
                        Tensor::of<int32_t>({4}, {2, 0, -1, -1})};
    const Var y = combine_rows(z, gates, beside(z, some));
    EXPECT_EQ(test::values(y.value()), (std::vector<double>{15, 22}));
    tape.backward(y, device.place(Tensor::of<double>({2, 1}, {1, 10})));
    EXPECT_EQ(test::values(tape.take_grad(z)), (std::vector<double>{110, 5, 0, 0}));
    EXPECT_EQ(test::values(tape.take_grad(gates)), (std::vector<double>{3, 0, 20}));
  }
}

TEST(CombineRows, GradientsAreThoseOfDifferences) {
  const Tensor z = test::random({5, 67}, 1), gates = test::random({4, 2}, 2);
  test::expect_gradients([&](const Var& v) { return combine_rows(v, gates, plan()); }, z, {});
  test::expect_gradients([&](const Var& v) { return combine_rows(z, v, plan()); }, gates, {});
}

TEST(CombineRows, TypesAgree) {
  const Tensor gates = test::random({4, 2}, 2, DType::kF32);
  const auto op = [&](const Var& v) {
    const Tensor g = test::cast(gates, accumulator_of(v.dtype()));
    return combine_rows(v, beside(v, g), beside(v, plan()));
  };
  for (const int64_t width : {301, 304}) {
    test::expect_types_agree(op, test::random({5, width}, 1), {});
  }
  // The gates' gradient, which stays in the accumulator's type.
  const auto dgates = [&](DType type, const test::TestDevice& device) {
    const Tensor z = test::cast(test::random({5, 301}, 1, DType::kBF16), type);
    const Tensor dy = test::cast(test::random({4, 301}, 3, DType::kBF16), type);
    const auto combine = [&](const Var& v) {
      return combine_rows(beside(v, z), v, beside(v, plan()));
    };
    return test::run_op(combine, test::cast(gates, accumulator_of(type)), {}, dy, device).dx;
  };
  const auto want = test::values(dgates(DType::kF64, {"cpu", nullptr}));
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      EXPECT_EQ(dgates(type, device).dtype(), DType::kF32);
      test::expect_near(dgates(type, device), want, test::op_tolerance(DType::kF32), "dgates");
    }
  }
}

TEST(CombineRows, Accumulates) {
  const Tensor z = test::random({5, 7}, 1), gates = test::random({4, 2}, 2);
  const auto of_rows = [&](const Var& v) {
    return combine_rows(v, beside(v, gates), beside(v, plan()));
  };
  const auto of_gates = [&](const Var& v) {
    return combine_rows(beside(v, z), v, beside(v, plan()));
  };
  test::expect_accumulates(of_rows, z, {});
  test::expect_accumulates(of_gates, gates, {});
}

TEST(CombineRows, ThreadsAgree) {
  constexpr int64_t kSlots = 900;
  SlotPlan many{301, {{0, kSlots}}, Tensor({kSlots}, DType::kI32), Tensor({kSlots}, DType::kI32)};
  for (int64_t s = 0; s < kSlots; ++s) {
    many.source.data<int32_t>()[s] =
        static_cast<int32_t>(philox(3, static_cast<uint64_t>(s))[0] % 301);
    many.gate.data<int32_t>()[s] = static_cast<int32_t>(s);
  }
  const Tensor z = test::random({kSlots, 133}, 1, DType::kF32);
  const Tensor gates = test::random({kSlots}, 2, DType::kF32);
  test::expect_threads_agree([&](const Var& v) { return combine_rows(v, gates, many); }, z, {});
  test::expect_threads_agree([&](const Var& v) { return combine_rows(z, v, many); }, gates, {});
}

// In pieces of 2, 0, 1 and 2 rows: all bits as in one.
void expect_pieces_are_the_whole(const test::TestDevice& device) {
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor z = test::random({5, 301}, 1, type), dy = test::random({4, 301}, 3, type);
    const Tensor g = test::cast(test::random({4, 2}, 2, DType::kF32), accumulator_of(type));
    std::vector<std::vector<double>> of_ways;
    for (const bool in_pieces : {false, true}) {
      Tape tape;
      const Var gates = tape.input(device.place(g));
      std::vector<Var> pieces;
      if (in_pieces) {
        for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 2}, {2, 1}, {3, 2}}) {
          pieces.push_back(tape.input(device.place(z.view(first * 301, {rows, 301}))));
        }
        pieces.insert(pieces.begin() + 1, Var());
      } else {
        pieces.push_back(tape.input(device.place(z)));
      }
      const Var y = combine_rows(pieces, gates, beside(gates, plan()));
      tape.backward(y, device.place(dy));
      std::vector<double>& all = of_ways.emplace_back(test::values(y.value()));
      const auto append = [&](const Var& x) {
        const auto more = test::values(tape.take_grad(x));
        all.insert(all.end(), more.begin(), more.end());
      };
      append(gates);
      for (const Var& piece : pieces) {
        if (!piece.value().empty()) append(piece);
      }
    }
    EXPECT_EQ(of_ways[0], of_ways[1]) << device.name << " " << name_of(type);
  }
}

TEST(CombineRows, PiecesAreTheWhole) {
  for (const test::TestDevice& device : test::devices()) expect_pieces_are_the_whole(device);
}

TEST(CombineRows, UndoesAGather) {
  const Tensor x = test::random({4, 7}, 1);
  const SlotPlan once{
      4, {{0, 4}}, Tensor::of<int32_t>({4}, {2, 0, 3, 1}), Tensor::of<int32_t>({4}, {0, 1, 2, 3})};
  const Var y = combine_rows(gather_rows(x, once.source), test::full({4}, 1), once);
  EXPECT_EQ(test::values(y.value()), test::values(x));
}

TEST(CombineRows, NoSlots) {
  const SlotPlan none{2, {}, Tensor({0}, DType::kI32), Tensor({0}, DType::kI32)};
  const Tensor gates = test::random({2, 1}, 1);
  const Tensor z({0, 3}, DType::kF64);
  const auto combine = [&](const Var& v) { return combine_rows(beside(v, z), v, beside(v, none)); };
  for (const test::TestDevice& device : test::devices()) {
    const auto run = test::run_op(combine, gates, {}, {}, device);
    EXPECT_EQ(test::values(run.y), std::vector<double>(6, 0.0));
    EXPECT_EQ(test::values(run.dx), (std::vector<double>{0, 0}));
  }
}

TEST(CombineRows, RefusesWhatDoesNotFit) {
  const Tensor z = test::random({5, 7}, 1), gates = test::random({4, 2}, 2);
  const Var one(test::random({4, 7}, 1)), other(test::random({1, 8}, 1));
  EXPECT_THROW(combine_rows(std::vector<Var>{one, other}, gates, plan()), Error);
  EXPECT_THROW(combine_rows(std::vector<Var>{Var()}, gates, plan()), Error);
  SlotPlan wrong = plan();
  wrong.rows = 3;
  EXPECT_THROW(combine_rows(z, gates, wrong), Error);
  EXPECT_THROW(combine_rows(z, test::random({7}, 2), plan()), Error);
  EXPECT_THROW(combine_rows(test::random({4, 7}, 1), gates, plan()), Error);
  EXPECT_THROW(combine_rows(test::cast(z, DType::kF32), gates, plan()), Error);
}

}  // namespace
}  // namespace anabranch
