// Every family and optimizer in training: equal losses on any number of ranks, a resume that is bit
// exact, and one batch learnt by heart.
#include <gtest/gtest.h>

#include "runtime/models/registry.h"
#include "runtime/training_state.h"
#include "tests/runtime/small_families.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

using test::copies;
using test::pipeline;
using test::streams;
using test::token_choice;
using test::two_experts;

struct Family {
  const char* name;
  void (*set)(Config& config);
  double heart_lr = 3e-3;  // at which it learns a batch by heart
};

const Family kFamilies[] = {
    {"gpt2", [](Config& c) { c.model.gpt2.dropout = 0.1; }, 1e-2},
    {"muon", [](Config& c) { c.optim.matrix = MatrixOptimizer::kMuon; }},
    {"aurora",
     [](Config& c) {
       c.optim.matrix = MatrixOptimizer::kAurora;
       c.optim.clip = 0;
     }},
    {"cmollm_adaptive", streams<GateVariant::kAdaptive>},
    {"cmollm_pipeline", pipeline<GateVariant::kLinear>},
    {"parascale", copies},
    {"altup", [](Config& c) { c.model.type = ModelType::kAltup; }},
    {"kappa_moe",
     [](Config& c) {
       token_choice(c);
       c.optim.weight_decay = 0;
     },
     1e-2},
    {"kappa_moe_aurora",
     [](Config& c) {
       token_choice(c);
       c.optim.matrix = MatrixOptimizer::kAurora;
       c.optim.matrix_lr = 0.02;
       c.optim.clip = 0;
     },
     1e-2},
    {"moep_msit", two_experts},
    {"moep_masked",
     [](Config& c) {
       two_experts(c);
       c.model.moep.causal_ratio = 0.5;
       c.model.moep.mlm_target = MaskTarget::kSame;
     },
     1e-2},
    {"moep_token_choice",
     [](Config& c) {
       two_experts(c);
       c.model.moep.select = Selection::kTokenChoice;
     }},
};

class Families : public testing::TestWithParam<Family> {
 protected:
  [[nodiscard]] Config config(const std::string& run, int64_t steps) const {
    Config c = folder_.config(run, steps);
    GetParam().set(c);
    fill_derived(c);
    return c;
  }

  const test::TrainingFolder folder_{true};
};

TEST_P(Families, RanksAgreeAndAResumeIsBitExact) {
  constexpr int64_t kSteps = 8;
  std::vector<double> alone;
  for (const int ranks : {1, 2, 3}) {
    const Config whole = config(join("whole-", ranks), kSteps);
    const test::Training once = test::run_training(whole, {.ranks = ranks});
    const std::vector<double> losses = once.losses();
    ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
    if (ranks == 1) alone = losses;
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], alone[i], test::kLayouts.relative * alone[i]) << ranks << " ranks";
    }
    EXPECT_LT(losses.back(), losses.front());
    EXPECT_FALSE(once.evals.empty());
    if (ranks == 3) continue;
    const Config parts = config(join("parts-", ranks), kSteps);
    const auto stop = [&](int rank, int64_t step, StopRequest& request) {
      if (rank == 0 && step == 3) request.raise(StopKind::kRequeue);
    };
    test::run_training(parts, {.ranks = ranks, .after_step = stop});
    test::run_training(parts, {.ranks = ranks, .resume = Resume::kMust});
    EXPECT_EQ(test::checkpoint_state(parts.run.dir, kSteps),
              test::checkpoint_state(whole.run.dir, kSteps))
        << ranks << " ranks";
  }
}

// Neither what training does nor what it saves shows that it was measured on the way.
TEST_P(Families, EvaluationLeavesTrainingAsItIs) {
  constexpr int64_t kSteps = 6;
  for (const int ranks : {1, 2}) {
    const Config plain = config(join("plain-", ranks), kSteps);
    Config measured = config(join("measured-", ranks), kSteps);
    measured.eval.every_steps = 2;
    const test::Training without = test::run_training(plain, {.ranks = ranks});
    const test::Training with = test::run_training(measured, {.ranks = ranks});
    EXPECT_GT(with.evals.size(), without.evals.size());
    EXPECT_EQ(with.losses(), without.losses()) << ranks << " ranks";
    EXPECT_EQ(test::checkpoint_state(measured.run.dir, kSteps),
              test::checkpoint_state(plain.run.dir, kSteps))
        << ranks << " ranks";
  }
}

// 300 steps on one batch.
TEST_P(Families, LearnsOneBatchByHeart) {
  Config c = config("heart", 300);
  c.optim.lr = GetParam().heart_lr;
  c.optim.weight_decay = 0;
  const int64_t vocabulary = 40, B = 4, T = c.model.context;
  const auto model = make_model(c, vocabulary);
  TrainingState state(*model, c, FlatStore::Options{}, nullptr);
  Measures measures(std::max<size_t>(model->measure_places(B), 1));
  Tensor ids({B, T}, DType::kI32), targets({B, T}, DType::kI32);
  for (int64_t i = 0; i < B * T; ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(philox(1, static_cast<uint64_t>(i))[0] % 40);
  }
  for (int64_t i = 0; i < B * T; ++i) {
    targets.data<int32_t>()[i] = i % T + 1 < T ? ids.data<int32_t>()[i + 1] : int32_t{7};
  }
  double loss = 0;
  for (int64_t step = 0; step < 300; ++step) {
    state.store().forget_grads();
    std::ranges::fill(measures.sums(), 0.0);
    Tape tape;
    const Var y = model->loss(tape, {ids, targets, 0}, {1, step, &measures},
                              1.0 / static_cast<double>(B * T));
    tape.backward(y);
    loss = test::values(y.value()).front();
    state.optimizer().step(step, state.optimizer().grad_norm());
    model->end_step(measures);
  }
  EXPECT_LT(loss, 0.05);
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(kFamilies),
                         [](const auto& f) { return std::string(f.param.name); });

}  // namespace
}  // namespace anabranch
