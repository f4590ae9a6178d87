// Rows on their way to experts of other ranks and home, between simulated GPUs by NCCL: what
// travels, where it goes and what comes back is as between CPUs.
#include "parallel/dispatch.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/ops/combine_rows.h"
#include "core/ops/expert_choice.h"
#include "core/ops/gather_rows.h"
#include "core/ops/grouped_linear.h"
#include "core/ops/kappa_swiglu.h"
#include "tests/cuda_sim/sim.h"
#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/parallel/dispatch_plans.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using test::Plan;
using test::TestDevice;

constexpr int64_t kWidth = 6;

class SimDispatch : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }
};

// What one rank has of a layer.
struct Layer {
  std::vector<Tensor> exact;  // indices, and rows that were only copied
  std::vector<Tensor> near;   // what was computed
  int64_t waits = 0;          // of the host for its GPU
};

// What a rank begins with, on the CPU.
struct Inputs {
  Tensor mask, x, gates, values, alpha, in, out, dy;

  Inputs(const Plan& plan, const Group& g) : mask(plan.mask_of(g.rank()).clone()) {
    const auto seed = static_cast<uint32_t>(10 * g.rank());
    const int64_t M = mask.dim(0), E = plan.experts;
    const int64_t mine = Division{E, g.size()}.count(g.rank());
    x = test::random({M, kWidth}, seed + 1);
    gates = test::random({M, E}, seed + 2);
    values = test::random({M * E}, seed + 3);
    alpha = test::random({mine, 4}, seed + 4);
    in = test::random({mine, 8, kWidth}, seed + 5);
    out = test::random({mine, kWidth, 4}, seed + 6);
    dy = test::random({M, kWidth}, seed + 7);
  }
};

// Experts with a value for each slot, weighed by gates. Their rows leave as they are sorted, or in
// two pieces and backwards.
Layer run_layer(const Inputs& from, int64_t experts, Group& g, const TestDevice& on, bool pieces) {
  Param alpha = test::param("alpha", from.alpha), in = test::param("in", from.in),
        out = test::param("out", from.out);
  const std::vector<Param*> params{&alpha, &in, &out};
  const test::ParamsOn placed(on, params);
  const SlotPlan plan = select_by_mask(on.place(from.mask));
  // On a GPU the plan has slots that are not used; each has a value too.
  const Tensor of_slots = from.values.view(0, {plan.source.count()});
  Tape tape;
  const Var x = tape.input(on.place(from.x)), gates = tape.input(on.place(from.gates)),
            values = tape.input(on.place(of_slots));
  const Tensor dy = on.place(from.dy);
  const auto waits = [&] { return on.pool ? on.pool->stream().waits() : 0; };
  Layer layer;
  const int64_t before = waits();
  const PendingCounts counts = dispatch_counts(plan, experts, {.model = &g});
  const PendingDispatch going = dispatch_start(x, counts);
  const PendingExchange sent = dispatch_slots_start(values, going);
  const Dispatched at = dispatch_finish(going);
  const Var here = dispatch_slots_finish(sent, at);
  const Groups& groups = at.plan.groups;
  const Var h = kappa_swiglu(grouped_linear(gather_rows(at.rows, at.plan.source), in, groups), here,
                             &alpha, nullptr, groups);
  std::vector<Var> z{grouped_linear(h, out, groups)};
  Tensor order;
  if (pieces) {
    const int64_t S = z[0].dim(0), some_of = S / 3;
    Tensor back({S}, DType::kI32);
    for (int64_t i = 0; i < S; ++i) back.data<int32_t>()[i] = static_cast<int32_t>(S - 1 - i);
    order = on.place(back);
    z = {gather_rows(z[0], order.view(0, {some_of})),
         gather_rows(z[0], order.view(some_of, {S - some_of}))};
  }
  const Var home = return_slots_finish(return_slots_start(z, at, order));
  const Var y = combine_rows(home, gates, going.plan);
  tape.backward(y, dy);
  layer.waits = waits() - before;
  layer.exact = {at.plan.source, at.group_row, at.route->arrived, at.rows.value(), here.value()};
  const Tensor dvalues = tape.take_grad(values);
  const int64_t used = going.plan.source.count(), unused = dvalues.count() - used;
  EXPECT_EQ(test::values(dvalues.view(used, {unused})),
            std::vector<double>(static_cast<size_t>(unused), 0));
  layer.near = {home.value(), y.value(), tape.take_grad(x), tape.take_grad(gates),
                dvalues.view(0, {used})};
  layer.near.insert(layer.near.end(), {alpha.grad, in.grad, out.grad});
  return layer;
}

void expect_as_on_cpus(const Plan& plan, int ranks, bool pieces, const std::string& name) {
  test::run_on_gpus(ranks, [&](Group& g, const TestDevice& on) {
    SCOPED_TRACE(name + ", " + plan.name);
    const Inputs from(plan, g);
    const Layer want = run_layer(from, plan.experts, g, {"cpu", nullptr}, pieces);
    const Layer got = run_layer(from, plan.experts, g, on, pieces);
    for (size_t i = 0; i < want.exact.size(); ++i) {
      EXPECT_TRUE(test::same_bytes(got.exact[i], want.exact[i])) << name << plan.name << i;
    }
    for (size_t i = 0; i < want.near.size(); ++i) {
      test::expect_near(got.near[i], test::values(want.near[i]), test::op_tolerance(DType::kF64),
                        join(name, ", ", plan.name, ", rank ", g.rank(), ", ", i));
    }
    EXPECT_EQ(got.waits, 1) << "the host waits for the counts alone";
    g.barrier();
  });
}

TEST_F(SimDispatch, IsThatOfCpus) {
  for (const int ranks : {2, 3}) {
    for (const Plan& plan : test::plans(ranks)) {
      for (const bool pieces : {false, true}) expect_as_on_cpus(plan, ranks, pieces, "");
    }
  }
}

// Uneven experts, a rank without rows: whatever comes first.
TEST_F(SimDispatch, NoScheduleMatters) {
  cuda_sim::for_each_schedule(3, [](const std::string& name) {
    const std::vector<Plan> plans = test::plans(3);
    for (const size_t i : {size_t{1}, plans.size() - 2}) {
      expect_as_on_cpus(plans[i], 3, true, name);
    }
  });
}

TEST_F(SimDispatch, RefusesRunsOfAnyLayout) {
  const TestDevice on = test::devices().back();
  const SlotPlan plan = select_by_mask(on.place(Tensor::of<uint8_t>({2, 2}, {1, 0, 1, 1})));
  EXPECT_THROW(dispatch_counts(plan, 2, {.any_layout = true}), Error);
}

}  // namespace
}  // namespace anabranch
