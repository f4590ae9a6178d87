// Experts over ranks in runs of any layout: bit by bit as on one rank.
#include <algorithm>
#include <numeric>

#include "core/ops/combine_rows.h"
#include "core/ops/expert_choice.h"
#include "core/ops/gather_rows.h"
#include "core/ops/grouped_linear.h"
#include "parallel/dispatch.h"
#include "tests/support/op_checks.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kWidth = 5;

// A mixture of experts of which this rank has some, as a run of any layout computes it.
struct AnyLayoutMixture {
  static constexpr int kSequences = 4;
  static constexpr int64_t kRows = 9, kExperts = 8, kTaken = 3;
  Param w;
  std::vector<Tensor> ys, dxs;  // of the sequences that are here

  explicit AnyLayoutMixture(const Division& experts, int rank) {
    const Tensor all = test::random({kExperts, kWidth, kWidth}, 3, DType::kF32);
    const int64_t size = kWidth * kWidth;
    w = test::param(
        "w", all.view(experts.begin(rank) * size, {experts.count(rank), kWidth, kWidth}).clone());
    w.grad = w.value.like("gradient");
    for (int lane = 1; lane < kSequences; ++lane) w.lanes.push_back({w.value.like("gradient")});
  }

  // Three experts of each row, others for each sequence.
  static SlotPlan plan_of(int sequence) {
    Tensor mask({kRows, kExperts}, DType::kU8);
    for (int64_t i = 0; i < mask.count(); ++i) {
      mask.data<uint8_t>()[i] = (i / kExperts + i * 5 + sequence) % kExperts < kTaken ? 1 : 0;
    }
    return select_by_mask(mask);
  }

  // swapped: what the experts made comes home in another order.
  void run(int sequence, const Regions& regions, bool swapped = false) {
    const auto seed = static_cast<uint32_t>(10 * sequence);
    const SlotPlan plan = plan_of(sequence);
    Tape tape;
    tape.set_lane(sequence);
    const Var x = tape.input(test::random({kRows, kWidth}, seed + 1, DType::kF32));
    const Var gates = tape.input(test::random({kRows, kExperts}, seed + 2, DType::kF32));
    const Dispatched at =
        dispatch_finish(dispatch_start(x, dispatch_counts(plan, kExperts, regions)));
    std::vector<Var> z;
    for_parts(at, regions, [&](const Dispatched& part) {
      z.push_back(grouped_linear(gather_rows(part.rows, part.plan.source), w, part.plan.groups));
    });
    Tensor order = at.plan.source.clone();
    std::iota(order.data<int32_t>(), order.data<int32_t>() + order.count(), 0);
    if (swapped) std::ranges::reverse(order.span<int32_t>());
    const Var home = return_slots_finish(return_slots_start(z, at, order));
    const Var y = combine_rows(home, gates, plan);
    tape.backward(y, test::random({kRows, kWidth}, seed + 3, DType::kF32));
    ys.push_back(y.value());
    dxs.push_back(tape.take_grad(x));
  }
};

// One sequence a rank, as a micro-batch of one rank in a lane of its own.
TEST(DispatchOfAnyLayout, IsThatOfOneRankBitByBit) {
  using Mixture = AnyLayoutMixture;
  Mixture one({Mixture::kExperts, 1}, 0);
  for (int i = 0; i < Mixture::kSequences; ++i) one.run(i, {.any_layout = true});
  for (const int ranks : {2, 4}) {
    run_on_threads(ranks, [&](Group& g) {
      const Division experts{Mixture::kExperts, ranks};
      Mixture mine(experts, g.rank());
      for (int i = g.rank(); i < Mixture::kSequences; i += ranks) {
        mine.run(i, {.model = &g, .any_layout = true});
        const auto at = static_cast<size_t>(i);
        EXPECT_TRUE(test::same_bytes(mine.ys.back(), one.ys[at])) << ranks << " ranks, " << i;
        EXPECT_TRUE(test::same_bytes(mine.dxs.back(), one.dxs[at])) << ranks << " ranks, " << i;
      }
      const auto same = [&](const Tensor& got, const Tensor& all) {
        const int64_t size = kWidth * kWidth;
        return test::same_bytes(got, all.view(experts.begin(g.rank()) * size, got.shape()));
      };
      EXPECT_TRUE(same(mine.w.grad, one.w.grad));
      for (size_t lane = 0; lane < mine.w.lanes.size(); ++lane) {
        EXPECT_TRUE(same(mine.w.lanes[lane].grad, one.w.lanes[lane].grad)) << lane;
      }
    });
  }
}

TEST(DispatchOfAnyLayout, WithExpertsInAnotherOrderIsNot) {
  using Mixture = AnyLayoutMixture;
  Mixture one({Mixture::kExperts, 1}, 0);
  for (int i = 0; i < Mixture::kSequences; ++i) one.run(i, {.any_layout = true});
  run_on_threads(Mixture::kSequences, [&](Group& g) {
    Mixture mine({Mixture::kExperts, g.size()}, g.rank());
    mine.run(g.rank(), {.model = &g, .any_layout = true}, true);
    const auto at = static_cast<size_t>(g.rank());
    EXPECT_FALSE(test::same_bytes(mine.ys.front(), one.ys[at]));
    EXPECT_FALSE(test::same_bytes(mine.dxs.front(), one.dxs[at]));
  });
}

// Each slot travels with a row, which knows where it stands in the group.
TEST(DispatchOfAnyLayout, RowsOfPartsKnowTheirPlace) {
  using Mixture = AnyLayoutMixture;
  run_on_threads(2, [](Group& g) {
    const Regions regions{.model = &g, .any_layout = true};
    Tensor x({Mixture::kRows, 1}, DType::kF64);
    for (int64_t i = 0; i < Mixture::kRows; ++i) {
      x.data<double>()[i] = static_cast<double>(g.rank() * Mixture::kRows + i);
    }
    const SlotPlan plan = Mixture::plan_of(g.rank());
    const Dispatched at =
        dispatch_finish(dispatch_start(x, dispatch_counts(plan, Mixture::kExperts, regions)));
    int64_t slots = 0;
    for_parts(at, regions, [&](const Dispatched& part) {
      EXPECT_EQ(part.first_slot, slots);
      slots += part.plan.rows;
      for (int64_t i = 0; i < part.plan.rows; ++i) {
        EXPECT_EQ(part.rows.value().data<double>()[i], part.group_row.data<int32_t>()[i]);
      }
    });
    EXPECT_EQ(slots, at.plan.source.count());
  });
}

}  // namespace
}  // namespace anabranch
