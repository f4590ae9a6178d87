// Routing on the simulated GPU: plans, rows on their way and back, losses. The same bits in every
// order, and not one wait of the host.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/ops/add.h"
#include "core/ops/balance_loss.h"
#include "core/ops/binary_cross_entropy.h"
#include "core/ops/combine_rows.h"
#include "core/ops/expert_choice.h"
#include "core/ops/expert_rows.h"
#include "core/ops/gather_rows.h"
#include "core/ops/permute_rows.h"
#include "core/ops/pool_counts.h"
#include "core/ops/radix_select.h"
#include "core/ops/router_z_loss.h"
#include "core/ops/slot_lists.h"
#include "core/ops/top_k_route.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

constexpr int64_t kRows = 520, kWidth = 12, kExperts = 11;

// In a GPU's memory; made once, as copies from the host may wait.
struct Inputs {
  Tensor x, logits, ties, dy, seed, member, threshold;

  explicit Inputs(const test::TestDevice& gpu)
      : x(gpu.place(test::random({kRows, kWidth}, 1, DType::kF32))),
        logits(gpu.place(test::random({kRows, kExperts}, 2, DType::kF32))),
        dy(gpu.place(test::random({kRows, kWidth}, 3, DType::kF32))),
        seed(gpu.place(test::full({1}, 100, DType::kF32))),
        threshold(gpu.place(test::full({kExperts}, 0.5, DType::kF32))) {
    Tensor marks({kRows, kExperts}, DType::kU8);
    for (int64_t i = 0; i < marks.count(); ++i) marks.data<uint8_t>()[i] = i % 5 == 0 ? 1 : 0;
    member = gpu.place(marks);
    Tensor coarse = test::random({kRows, kExperts}, 4, DType::kF32);
    for (float& v : coarse.span<float>()) v = std::round(3 * v);
    ties = gpu.place(coarse);
  }
};

void append(std::vector<Tensor>& to, const SlotPlan& plan) {
  to.insert(to.end(), {plan.source, plan.gate});
  if (!plan.groups.on_host()) to.push_back(plan.groups.on_device);
}

// What a part of a pool counts and takes, of one part.
void append_radix(std::vector<Tensor>& to, const Tensor& scores) {
  constexpr int kBits = 8;
  RadixSelect of = radix_select(scores, kRows / 3);
  for (int low = 32 - kBits; low >= 0; low -= kBits) {
    take_digit(of, {low, kBits}, digit_counts(of, {low, kBits}));
  }
  const Tensor all = digit_counts(of, {0, 0}).reshape({1, 1, kExperts});
  const Tensor before = pool_counts_before(all, 0);
  to.insert(to.end(), {kth_scores(of), all, before, pool_counts_total(all)});
  for (const SlotOrder order : {SlotOrder::kTime, SlotOrder::kAffinity}) {
    append(to, slots_taken(of, before, order));
  }
}

// The lists of what goes to two ranks and comes of them, whose experts' slots lie one after the
// other in a choice of those of both.
std::vector<Tensor> slot_lists(const SlotPlan& plan, const ExpertChoice& choice) {
  constexpr int64_t kHere = kExperts / 2;
  const Tensor told = plan.source.like({kExperts + 4}, DType::kI64, "told");
  const Tensor sent = rows_to_send(told, plan, std::vector<int64_t>{0, 3, kExperts});
  ArrivingSlots coming{{}, {kRows, kRows}, {kRows, kRows}};
  for (int64_t e = 0; e < 2 * kHere; ++e) coming.held.push_back(choice.plan.groups.size(e));
  const int64_t slots = choice.plan.groups.begin(2 * kHere);
  const ArrivedSlots arrived = arrived_slots(choice.plan.source.view(0, {slots}), coming);
  return {told, sent, arrived.plan.source, arrived.plan.gate, arrived.group_row, arrived.place};
}

// All routing ops, forward and backward.
std::vector<Tensor> run(const Inputs& in) {
  Tape tape;
  const Var x = tape.input(in.x), logits = tape.input(in.logits);
  const TopKRoute route = top_k_route(logits, {2, GateForm::kProbability, 40, kRows / 2});
  const TopKRoute all = top_k_route(logits, {3});
  const ExpertChoice choice = expert_choice(in.logits, {2, kRows / 4, SlotOrder::kAffinity});
  const SlotPlan above = select_by_threshold(in.logits, in.threshold);
  const SlotPlan marked = select_by_mask(in.member), own = slots_of(choice.plan, 100, 200);
  const SlotPlan positive = select_positive(in.logits);
  const std::vector<int64_t> windows(kExperts, 9);
  const ExpertRows laid_out = expert_rows(
      positive,
      {kRows / 2, SlotOrder::kAffinity, SlotPosition::kOriginal, SlotPosition::kCompact, true},
      windows, in.logits);
  const std::vector<Var> losses{balance_loss(logits, route.demand, {kRows / 2, 2}),
                                router_z_loss(logits, ZLossForm::kDemeaned),
                                binary_cross_entropy(logits, in.member)};
  const auto through = [&](const SlotPlan& plan, const Var& gates) {
    return combine_rows(gather_rows(x, plan.source), gates, plan);
  };
  const std::vector<Var> ys{through(route.plan, route.gates), through(choice.plan, logits),
                            through(above, logits), through(marked, logits),
                            through(all.plan, all.gates)};
  const std::vector<Var> thrice{x, x, x};
  const Var permuted = permute_rows(thrice, all.plan.gate);  // has every choice once
  for (const Var& loss : losses) tape.give(loss, in.seed);
  tape.give(permuted, permuted.value());
  for (const Var& y : ys) {
    if (y.id() != ys.back().id()) tape.give(y, in.dy);
  }
  tape.backward(ys.back(), in.dy);
  std::vector<Tensor> got{route.expert,         route.slot,
                          route.demand,         route.gates.value(),
                          choice.kth,           route.selected.value(),
                          membership(positive), slot_gates(in.logits, positive),
                          laid_out.slots,       laid_out.positions,
                          laid_out.first_key,   laid_out.last_key,
                          permuted.value(),     inverse_order(all.plan.gate, all.plan.gate),
                          tape.take_grad(x),    tape.take_grad(logits)};
  for (const SlotPlan& plan :
       {route.plan, all.plan, choice.plan, above, marked, own, positive, laid_out.plan}) {
    append(got, plan);
  }
  append_radix(got, in.ties);
  for (const Tensor& t : slot_lists(route.plan, choice)) got.push_back(t);
  for (const Var& v : losses) got.push_back(v.value());
  for (const Var& v : ys) got.push_back(v.value());
  return got;
}

class SimRouting : public testing::Test {
 protected:
  void TearDown() override {
    cuda_sim::options() = kept_;
    EXPECT_EQ(cuda_sim::take_fault(), "");
  }

 private:
  cuda_sim::Options kept_ = cuda_sim::options();
};

TEST_F(SimRouting, GivesTheSameBitsInEveryOrder) {
  const Inputs in(test::devices().back());
  std::vector<Tensor> want;
  for (const Tensor& t : run(in)) want.push_back(t.copy_in(nullptr));
  const auto same = [&](const std::string& name) {
    const std::vector<Tensor> got = run(in);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(test::same_bytes(got[i], want[i])) << name << " " << i;
    }
  };
  cuda_sim::for_each_order(2, same);
  cuda_sim::for_each_schedule(2, same);
}

// Rows of packs' width that begin between packs.
TEST_F(SimRouting, TakesViewsThatAreNotAligned) {
  const test::TestDevice gpu = test::devices().back();
  const Tensor source = gpu.place(Tensor::of<int32_t>({4}, {2, 0, 2, -1}));
  const SlotPlan plan{3, {{0, 4}}, source, gpu.place(Tensor::of<int32_t>({4}, {1, 0, 3, -1}))};
  const Tensor whole = gpu.place(test::random({1 + 4 * 8}, 1, DType::kF32));
  const Tensor gates = gpu.place(test::random({4}, 2, DType::kF32));
  const auto run_from = [&](const Tensor& z, const Tensor& dy) {
    Tape tape;
    const Var leaf = tape.input(z);
    const Var y = combine_rows(gather_rows(leaf, plan.source), gates, plan);
    tape.backward(combine_rows(leaf, gates, plan) + y, dy);
    return std::vector<Tensor>{y.value(), tape.take_grad(leaf)};
  };
  const Tensor z = whole.view(1, {4, 8}), dy = whole.view(9, {3, 8});
  const std::vector<Tensor> got = run_from(z, dy), want = run_from(z.clone(), dy.clone());
  EXPECT_TRUE(test::same_bytes(got[0], want[0]));
  test::expect_near(got[1], test::values(want[1]), test::op_tolerance(DType::kF32), "dz");
}

// The GPU may be as late as it likes: the host has put all work on the stream before any of it ran.
TEST_F(SimRouting, NeverWaitsForTheGpu) {
  const Device gpu{Device::Kind::kCuda, 0};
  const Inputs in({"cuda", std::make_shared<Pool>(gpu)});
  cuda_sim::options().streams = cuda_sim::Streams::kLazy;
  in.x.pool()->stream().synchronise();
  const uint64_t before = cuda_sim::counters().kernels;
  const std::vector<Tensor> got = run(in);
  EXPECT_EQ(cuda_sim::counters().kernels, before);
  EXPECT_EQ(test::values(got.back()).size(), static_cast<size_t>(kRows * kWidth));
  EXPECT_GT(cuda_sim::counters().kernels, before + 50);
}

}  // namespace
}  // namespace anabranch
