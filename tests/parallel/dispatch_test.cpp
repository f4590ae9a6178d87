#include "parallel/dispatch.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "core/ops/combine_rows.h"
#include "core/ops/expert_choice.h"
#include "core/ops/gather_rows.h"
#include "core/ops/grouped_linear.h"
#include "parallel/collectives.h"
#include "tests/parallel/dispatch_plans.h"
#include "tests/support/op_checks.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

using test::Plan;
using test::plans;

constexpr int64_t kWidth = 5;

// y[s] = values[index[s]], whatever the shape of values.
Var pick(const Var& values, const Tensor& index) {
  Tensor y = values.value().like({index.count()}, DType::kF64, "pick");
  for (int64_t s = 0; s < y.count(); ++s) {
    y.data<double>()[s] = values.value().data<double>()[index.data<int32_t>()[s]];
  }
  return values.tape()->record("pick", y, {}, [values, index](Tape& t, const Tensor& dy) {
    Tensor dx = values.value().like("gradient");
    dx.fill_zero();
    for (int64_t s = 0; s < dy.count(); ++s) {
      dx.data<double>()[index.data<int32_t>()[s]] += dy.data<double>()[s];
    }
    t.give(values, dx);
  });
}

// y[s] = by[s] x[s].
Var scaled(const Var& x, const Var& by) {
  const auto times = [](const Tensor& a, const Tensor& b) {
    Tensor y = a.like("scaled");
    for (int64_t i = 0; i < y.count(); ++i) {
      y.data<double>()[i] = b.data<double>()[i / kWidth] * a.data<double>()[i];
    }
    return y;
  };
  return x.tape()->record(
      "scaled", times(x.value(), by.value()), {}, [=](Tape& t, const Tensor& dy) {
        t.give(x, times(dy, by.value()));
        Tensor dby = by.value().like("gradient");
        dby.fill_zero();
        for (int64_t i = 0; i < dy.count(); ++i) {
          dby.data<double>()[i / kWidth] += dy.data<double>()[i] * x.value().data<double>()[i];
        }
        t.give(by, dby);
      });
}

struct Layer {
  Tensor y, dx, dgates, dvalues, dw;
};

// Experts w_e x scaled by a value of the slot, weighed by gates: all that a mixture does.
Layer run_layer(const Tensor& x_value, const Tensor& table, const Tensor& mask,
                const Tensor& w_value, Group* group) {
  const int64_t E = mask.dim(1);
  Param w = test::param("w", w_value);
  Tape tape;
  const Var x = tape.input(x_value), gates = tape.input(table), values = tape.input(table.clone());
  const SlotPlan plan = select_by_mask(mask);
  const PendingDispatch going = dispatch_start(x, dispatch_counts(plan, E, {.model = group}));
  const PendingExchange with = dispatch_slots_start(pick(values, plan.gate), going);
  const Dispatched at = dispatch_finish(going);
  const Var scale = dispatch_slots_finish(with, at);
  const Var rows = grouped_linear(gather_rows(at.rows, at.plan.source), w, at.plan.groups);
  const Var z = scaled(rows, scale);
  const Var home = return_slots_finish(return_slots_start(std::span(&z, 1), at));
  const Var y = combine_rows(home, gates, plan);
  tape.backward(y, x_value.clone());  // a gradient that differs by row, whatever rank has it
  return {y.value(), tape.take_grad(x), tape.take_grad(gates), tape.take_grad(values), w.grad};
}

// Rows of a matrix.
std::vector<double> part(const Tensor& all, int64_t first, int64_t rows, int64_t width) {
  return test::values(all.view(first * width, {rows, width}));
}

class Dispatch : public testing::TestWithParam<int> {};

TEST_P(Dispatch, ALayerIsThatOfOneRank) {
  const int ranks = GetParam();
  const test::Tolerance tolerance = test::op_tolerance(DType::kF64);
  for (const Plan& plan : plans(ranks)) {
    SCOPED_TRACE(plan.name);
    const int64_t E = plan.experts;
    const Tensor x = test::random({plan.rows(), kWidth}, 1);
    const Tensor table = test::random({plan.rows(), E}, 2);
    const Tensor w = test::random({E, kWidth, kWidth}, 3);
    const Layer want = run_layer(x, table, plan.mask, w, nullptr);
    run_on_threads(ranks, [&](Group& g) {
      const int64_t first = plan.first(g.rank());
      const int64_t M = plan.rows_of[static_cast<size_t>(g.rank())];
      const Division experts{E, ranks};
      const int64_t e = experts.begin(g.rank()), mine = experts.count(g.rank());
      const Layer got = run_layer(x.view(first * kWidth, {M, kWidth}).clone(),
                                  table.view(first * E, {M, E}).clone(), plan.mask_of(g.rank()),
                                  w.view(e * kWidth * kWidth, {mine, kWidth, kWidth}).clone(), &g);
      EXPECT_EQ(test::values(got.y), part(want.y, first, M, kWidth)) << plan.name;
      test::expect_near(got.dx, part(want.dx, first, M, kWidth), tolerance, "dx");
      test::expect_near(got.dgates, part(want.dgates, first, M, E), tolerance, "dgates");
      test::expect_near(got.dvalues, part(want.dvalues, first, M, E), tolerance, "dvalues");
      test::expect_near(got.dw, part(want.dw, e, mine, kWidth * kWidth), tolerance, "dw");
    });
  }
}

// Expert, then row of the group: as one rank has them.
TEST_P(Dispatch, SlotsAreInTheOrderOfOneRank) {
  const int ranks = GetParam();
  for (const Plan& plan : plans(ranks)) {
    SCOPED_TRACE(plan.name);
    run_on_threads(ranks, [&](Group& g) {
      const int64_t M = plan.rows_of[static_cast<size_t>(g.rank())];
      const SlotPlan own = select_by_mask(plan.mask_of(g.rank()));
      const Dispatched at = dispatch_finish(dispatch_start(
          Tensor({M, kWidth}, DType::kF32), dispatch_counts(own, plan.experts, {.model = &g})));
      const auto number = [&](int64_t row) {
        return at.group_row.empty() ? row : int64_t{at.group_row.data<int32_t>()[row]};
      };
      std::set<int64_t> rows;
      const Division experts{plan.experts, ranks};
      for (int64_t e = 0; e < experts.count(g.rank()); ++e) {
        std::vector<int64_t> got, want;
        for (int64_t s = at.plan.groups.begin(e); s < at.plan.groups.end(e); ++s) {
          got.push_back(number(at.plan.source.data<int32_t>()[s]));
        }
        for (int64_t row = 0; row < plan.rows(); ++row) {
          if (plan.takes(row, experts.begin(g.rank()) + e)) want.push_back(row);
        }
        EXPECT_EQ(got, want) << plan.name << ", expert " << e;
        rows.insert(want.begin(), want.end());
      }
      if (ranks > 1) {
        EXPECT_EQ(at.plan.rows, std::ssize(rows)) << "a row came twice";
      }
    });
  }
}

// What the transport counts: the larger side of each call.
TEST_P(Dispatch, BytesAreThoseOfTheRouting) {
  const int ranks = GetParam();
  for (const Plan& plan : plans(ranks)) {
    SCOPED_TRACE(plan.name);
    const Division experts{plan.experts, ranks};
    // Slots and distinct rows that rank `from` has for rank `to`.
    const auto count = [&](int from, int to) {
      std::array<int64_t, 2> both{};
      for (int64_t row = plan.first(from); row < plan.first(from + 1); ++row) {
        int64_t slots = 0;
        for (int64_t e = experts.begin(to); e < experts.end(to); ++e) slots += plan.takes(row, e);
        both[0] += slots;
        both[1] += slots > 0 ? 1 : 0;
      }
      return both;
    };
    const Tensor x = test::random({plan.rows(), kWidth}, 1);
    const Tensor table = test::random({plan.rows(), plan.experts}, 2);
    run_on_threads(ranks, [&](Group& g) {
      const int64_t M = plan.rows_of[static_cast<size_t>(g.rank())], E = plan.experts;
      const int64_t first = plan.first(g.rank());
      run_layer(x.view(first * kWidth, {M, kWidth}).clone(), table.view(first * E, {M, E}).clone(),
                plan.mask_of(g.rank()), test::random({experts.count(g.rank()), kWidth, kWidth}, 3),
                &g);
      std::array<int64_t, 2> out{}, in{};  // slots, rows
      for (int r = 0; r < ranks; ++r) {
        for (const size_t i : {0U, 1U}) {
          out[i] += count(g.rank(), r)[i];
          in[i] += count(r, g.rank())[i];
        }
      }
      const int64_t slots = std::max(out[0], in[0]), rows = std::max(out[1], in[1]);
      const int64_t counts = std::max(E + 2 * ranks, (experts.count(g.rank()) + 2) * ranks);
      const CommStats::Count stats = g.stats().of(CollectiveKind::kAllToAll);
      const int64_t row = kWidth * 8;
      // Counts, lists; rows out and their gradients; values the same; outputs the same.
      EXPECT_EQ(stats.calls, ranks == 1 ? 0 : 8) << plan.name;
      EXPECT_EQ(stats.bytes, ranks == 1 ? 0
                                        : counts * 8 + slots * 4 + 2 * rows * row + 2 * slots * 8 +
                                              2 * slots * row)
          << plan.name;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Dispatch, testing::Values(1, 2, 3, 4));

// Pieces in an order of their own come home as if they had none.
TEST(Dispatch, PiecesMayHaveAnyOrder) {
  const Plan plan = plans(2).front();
  const Tensor x = test::random({plan.rows(), kWidth}, 1);
  run_on_threads(2, [&](Group& g) {
    const int64_t M = plan.rows_of[0];
    Tape tape;
    const Var leaf = tape.input(x.view(g.rank() * M * kWidth, {M, kWidth}).clone());
    const SlotPlan own = select_by_mask(plan.mask_of(g.rank()));
    const Dispatched at =
        dispatch_finish(dispatch_start(leaf, dispatch_counts(own, plan.experts, {.model = &g})));
    const int64_t S = at.plan.source.count(), half = S / 3;
    Tensor order({S}, DType::kI32), source({S}, DType::kI32);
    for (int64_t i = 0; i < S; ++i) {
      const int64_t slot = (i * 5 + 2) % S;
      order.data<int32_t>()[i] = static_cast<int32_t>(slot);
      source.data<int32_t>()[i] = at.plan.source.data<int32_t>()[slot];
    }
    ASSERT_NE(S % 5, 0);
    const std::vector<Var> pieces{gather_rows(at.rows, source.view(0, {half})),
                                  gather_rows(at.rows, source.view(half, {S - half}))};
    const Var home = return_slots_finish(return_slots_start(pieces, at, order));
    EXPECT_EQ(test::values(home.value()),
              test::values(gather_rows(leaf.value(), own.source).value()));
    const Tensor dy = test::random(home.shape(), 9);
    tape.backward(home, dy);
    Tape local;
    const Var same = local.input(leaf.value());
    local.backward(gather_rows(same, own.source), dy);
    test::expect_near(tape.take_grad(leaf), test::values(local.take_grad(same)),
                      test::op_tolerance(DType::kF64), "dx");
  });
}

TEST(Dispatch, OtherBackwardsRunWhileGradientsTravel) {
  run_on_threads(2, [](Group& g) {
    std::vector<std::string> order;
    const auto note = [&](const Var& v, const char* name) { return test::noted(v, name, order); };
    Tape tape;
    const Var x = tape.input(test::random({2, kWidth}, 2));
    const PendingExchange pending = exchange_rows_start(note(x, "before"), {{1, 1}, {1, 1}}, &g);
    const Var beside = note(x, "beside");
    const Var y = note(exchange_rows_finish(pending), "after");
    const Var both = tape.record("join", y.value(), {}, [&](Tape& t, const Tensor& dy) {
      t.give(y, dy);
      t.give(beside, dy);
    });
    tape.backward(both, test::full(both.shape(), 1));
    EXPECT_EQ(order, (std::vector<std::string>{"after", "beside", "before"}));
  });
}

TEST(Dispatch, RefusesWhatDoesNotFit) {
  Tensor mask({2, 3}, DType::kU8);
  mask.fill_zero();
  const SlotPlan plan = select_by_mask(mask);
  EXPECT_THROW(dispatch_start(Tensor({3, kWidth}, DType::kF32), dispatch_counts(plan, 3, {})),
               Error);
}

}  // namespace
}  // namespace anabranch
