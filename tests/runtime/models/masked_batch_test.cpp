#include "runtime/models/masked_batch.h"

#include <algorithm>
#include <cmath>

#include "runtime/config/validate_moep.h"
#include "tests/runtime/models/moep_case.h"
#include "tests/runtime/training.h"

namespace anabranch {
namespace {

MoepKeys masking(double causal_ratio, MaskTarget target) {
  MoepKeys keys;
  keys.causal_ratio = causal_ratio;
  keys.mlm_target = target;
  return keys;
}

class MaskedAgainstPyTorch : public testing::TestWithParam<const char*> {};

// The loss over the masked positions, and every gradient; the thresholds after the pool.
TEST_P(MaskedAgainstPyTorch, LossesAndGradients) {
  const test::Reference ref("moep_options.h5");
  const std::string name = GetParam();
  const Config config = test::adamw_of_references();
  const Tensor tokens = ref.integers(name + "/tokens"), mask = ref.integers(name + "/mask");
  Tensor targets = ref.integers(name + "/targets");
  for (int64_t i = 0; i < mask.count(); ++i) {
    if (mask.data<int32_t>()[i] == 0) targets.data<int32_t>()[i] = -1;
  }
  for (const DType type : {DType::kF64, DType::kF32}) {
    for (const bool recompute : {false, true}) {
      const auto make = [&](DType compute) {
        MoepOptions o = test::options_of(ref, name, compute);
        o.recompute = recompute;
        return std::make_unique<MoepMsit>(o);
      };
      test::FamilyCase c(ref, name, make, type, config);
      c.learnt = targets;
      c.loss_of = [&](Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) {
        return dynamic_cast<MoepMsit&>(c.model()).masked_loss(tape, batch, key, scale);
      };
      c.expect_all();
      if (type != DType::kF64) continue;
      Measures measures(c.model().measure_places(tokens.dim(0)));
      Tape tape;
      c.loss_of(tape, {tokens, targets, 0}, {1, 0, &measures}, 1);
      c.model().end_step(measures);
      test::expect_thresholds(c.model(), ref, name + "/buffers_after/", test::kModelF64);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MaskedAgainstPyTorch, testing::Values("mlm_same", "mlm_next"),
                         [](const auto& param) { return std::string(param.param); });

TEST(MaskedBatch, TheShareOfStepsIsTheRatio) {
  constexpr int64_t kSteps = 20000;
  std::vector<bool> drawn[2];
  for (const uint64_t seed : {1U, 2U}) {
    int64_t count = 0;
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepKey key{seed, step};
      EXPECT_FALSE(is_masked(masking(1, MaskTarget::kSame), key));
      EXPECT_TRUE(is_masked(masking(0, MaskTarget::kSame), key));
      drawn[seed - 1].push_back(is_masked(masking(0.7, MaskTarget::kSame), key));
      count += drawn[seed - 1].back() ? 1 : 0;
    }
    // Four deviations of a binomial.
    EXPECT_NEAR(static_cast<double>(count), 0.3 * kSteps, 4 * std::sqrt(0.21 * kSteps));
  }
  EXPECT_NE(drawn[0], drawn[1]);
}

TEST(MaskedBatch, TheCountMovesFromTheFirstShareToTheLast) {
  const MoepKeys keys;  // 0.2 to 0.1
  EXPECT_EQ(masked_tokens(keys, 0, 512), 102);
  EXPECT_EQ(masked_tokens(keys, 0.5, 512), 77);
  EXPECT_EQ(masked_tokens(keys, 1, 512), 51);
  EXPECT_EQ(masked_tokens(keys, 1, 3), 1);
  MoepKeys all;
  all.mask_first = all.mask_last = 1;
  EXPECT_EQ(masked_tokens(all, 0.5, 9), 9);
}

constexpr int64_t kT = 40, kMask = 99;

MicroBatch some_batch(int64_t first_sample, int64_t sequences) {
  MicroBatch batch{Tensor({sequences, kT}, DType::kI32), Tensor({sequences, kT}, DType::kI32),
                   first_sample};
  for (int64_t i = 0; i < sequences * kT; ++i) {
    const auto token = static_cast<int32_t>((first_sample * kT + i) % 50);
    batch.inputs.data<int32_t>()[i] = token;
    batch.targets.data<int32_t>()[i] = token + 1;
  }
  return batch;
}

std::vector<int32_t> ints(const Tensor& t) {
  return {t.span<int32_t>().begin(), t.span<int32_t>().end()};
}

TEST(MaskedBatch, HidesSomeTokensAndLearnsThemOrTheNext) {
  for (const MaskTarget target : {MaskTarget::kSame, MaskTarget::kNext}) {
    const MicroBatch batch = some_batch(3, 4);
    const Tensor kept = batch.inputs.clone();
    const MicroBatch got = masked(batch, masking(0, target), kMask, 7, {1, 5});
    EXPECT_EQ(ints(batch.inputs), ints(kept));
    EXPECT_EQ(got.first_sample, 3);
    for (int64_t b = 0; b < 4; ++b) {
      int64_t count = 0;
      for (int64_t i = b * kT; i < (b + 1) * kT; ++i) {
        const int32_t token = kept.data<int32_t>()[i], input = got.inputs.data<int32_t>()[i];
        const int32_t learnt = got.targets.data<int32_t>()[i];
        const bool hidden = input == kMask;
        count += hidden ? 1 : 0;
        EXPECT_EQ(input, hidden ? kMask : token);
        EXPECT_EQ(learnt, !hidden ? -1 : target == MaskTarget::kSame ? token : token + 1);
      }
      EXPECT_EQ(count, 7);
    }
  }
}

TEST(MaskedBatch, IsTheSameInAnySplit) {
  const MoepKeys keys = masking(0, MaskTarget::kSame);
  const auto inputs = [&](int64_t first, int64_t sequences, int64_t step) {
    const StepKey key{1, step};
    return ints(masked(some_batch(first, sequences), keys, kMask, 7, key).inputs);
  };
  const auto whole = inputs(6, 4, 5);
  std::vector<int32_t> parts;
  for (const auto& [first, sequences] : {std::pair<int64_t, int64_t>{6, 1}, {7, 2}, {9, 1}}) {
    const auto part = inputs(first, sequences, 5);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, whole);
  EXPECT_NE(inputs(6, 4, 6), whole);
}

TEST(MaskedBatch, EveryPlaceIsHiddenAsOften) {
  constexpr int64_t kSteps = 4000;
  std::vector<double> times(kT, 0);
  const MicroBatch batch = some_batch(0, 1);
  for (int64_t step = 0; step < kSteps; ++step) {
    const MicroBatch got = masked(batch, masking(0, MaskTarget::kSame), kMask, 8, {1, step});
    for (size_t t = 0; t < kT; ++t) times[t] += got.inputs.data<int32_t>()[t] == kMask ? 1 : 0;
  }
  // A fifth of the steps; 4.5 deviations of a binomial.
  for (const double n : times) EXPECT_NEAR(n, 0.2 * kSteps, 4.5 * std::sqrt(0.16 * kSteps));
}

struct Learnt {
  double loss, share;
  std::vector<double> of_tokens;  // validation
};

Learnt loss_of(const MoepKeys& keys, int64_t step) {
  const auto model = test::random_model(Selection::kEcBatch, keys);
  Measures measures(model->measure_places(test::kB));
  const Tensor ids = test::some_ids();
  Tape tape;
  const Var loss = model->loss(tape, {ids, ids, 0}, {1, step, &measures, 0.5}, 1.0 / 27);
  return {test::values(loss.value()).front(), measures.at(1),
          test::values(model->token_losses({ids, ids}, Routing::kCausal))};
}

TEST(MaskedSteps, AreThePartOfTheRunThatTheRatioSays) {
  const MoepKeys keys = masking(0.5, MaskTarget::kSame);
  const Learnt causal = loss_of({}, 0);
  EXPECT_EQ(causal.share, 0);
  int64_t steps = 0;
  for (int64_t step = 0; step < 12; ++step) {
    const bool hides = is_masked(keys, {1, step});
    const Learnt got = loss_of(keys, step);
    steps += hides ? 1 : 0;
    EXPECT_EQ(got.loss == causal.loss, !hides) << step;
    EXPECT_DOUBLE_EQ(got.share, hides ? 1.0 / 9 : 0);  // 0.15 * 9 tokens are one
    EXPECT_EQ(got.of_tokens, causal.of_tokens);        // the headline is causal
  }
  EXPECT_TRUE(steps > 2 && steps < 10) << steps;
}

// scale is of the step's tokens; the loss is the mean over the masked ones.
TEST(MaskedSteps, MeanOverTheMaskedTokens) {
  for (const MaskTarget target : {MaskTarget::kSame, MaskTarget::kNext}) {
    MoepKeys keys = masking(0, target);
    keys.mask_first = keys.mask_last = 1.0 / 3;
    const auto model = test::random_model(Selection::kEcBatch, keys);
    const MicroBatch batch{test::some_ids(), test::some_ids(), 6};
    const StepKey key{1, 4};
    Tape tape;
    const double got = test::values(model->loss(tape, batch, key, 1.0 / 27).value()).front();
    const MicroBatch hidden = masked(batch, keys, test::kV - 1, 3, key);
    const Var want = dynamic_cast<MoepMsit&>(*model).masked_loss(tape, hidden, key, 1.0 / 9);
    EXPECT_DOUBLE_EQ(got, test::values(want.value()).front());
    EXPECT_GT(got, 0.5);
  }
}

TEST(MaskedSteps, TheRunReportsTheirShares) {
  const test::TrainingFolder folder(true);
  Config config = folder.config("run", 5);
  config.model.type = ModelType::kMoepMsit;
  config.model.moep = masking(0, MaskTarget::kSame);
  config.model.moep.windows = {5, 3};
  config.model.moep.expert_width = 12;
  config.model.moep.expert_heads = 2;
  config.model.moep.capacity = 1;
  config.model.moep.mask_first = 0.5;
  config.model.moep.mask_last = 0.25;
  config.model.ffn_width = 0;
  config.train.log_every = 1;
  const test::Training run = test::run_training(config, {.ranks = 2});
  std::vector<double> shares;
  for (const StepReport& report : run.steps.front()) {
    for (const Reading& r : report.readings) {
      if (r.metric == Metric::kMaskedTokens) shares.push_back(r.value);
    }
  }
  ASSERT_EQ(shares.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(shares[i], (8 - static_cast<double>(i)) / 16, 1e-12);  // of 16 tokens
  }
}

TEST(MaskedSteps, NeedAMaskToken) {
  const test::TrainingFolder folder;  // its last token ends documents
  Config config = folder.config("run", 2);
  config.model.type = ModelType::kMoepMsit;
  config.model.moep = masking(0.5, MaskTarget::kSame);
  config.model.ffn_width = 0;
  try {
    test::run_training(config);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("mask token"), std::string::npos) << e.what();
    EXPECT_EQ(e.fault(), Fault::kConfig);
  }
}

TEST(MaskedSteps, KeysMustAgree) {
  Config config;
  config.model.type = ModelType::kMoepMsit;
  config.model.moep.mask_first = 0;
  config.train.outlier_sigma = 3;
  EXPECT_TRUE(check_masking(config).empty());
  config.model.moep.causal_ratio = 0.9;
  const auto broken = check_masking(config);
  ASSERT_EQ(broken.size(), 2U);
  EXPECT_NE(broken[0].find("model.mask_first 0"), std::string::npos);
  EXPECT_NE(broken[1].find("train.outlier_sigma 3"), std::string::npos);
}

}  // namespace
}  // namespace anabranch
