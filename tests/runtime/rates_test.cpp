#include "runtime/rates.h"

#include <gtest/gtest.h>

namespace anabranch {
namespace {

Config config_of(int64_t steps) {
  Config config;
  config.train.steps = steps;
  config.train.batch_tokens = 1 << 19;
  config.model.width = 768;
  config.model.layers = 12;
  config.optim.schedule = ScheduleForm::kConstant;
  config.optim.lr = 1;
  return config;
}

Param param_of(Role role, Owner owner = Owner::kAdamw) {
  Param w("w", {2, 2}, Init::constant(0), true);
  w.role = role;
  w.owner = owner;
  return w;
}

TEST(Schedule, FallsLinearlyOverTheLastShare) {
  const Schedule lr{ScheduleForm::kLinear, 0, 0, 100, 0.5};
  EXPECT_DOUBLE_EQ(lr(0), 1);
  EXPECT_DOUBLE_EQ(lr(50), 1);
  EXPECT_DOUBLE_EQ(lr(75), 0.5);
  EXPECT_DOUBLE_EQ(lr(99), 0.02);
  const Schedule to_tenth{ScheduleForm::kLinear, 0.1, 10, 100, 0.5};
  EXPECT_DOUBLE_EQ(to_tenth(4), 0.5);
  EXPECT_DOUBLE_EQ(to_tenth(100), 0.1);
}

TEST(Rates, FollowWidthBatchAndDepth) {
  Config config = config_of(100);
  config.model.width = 1152;
  config.train.batch_tokens = 1 << 18;
  config.model.layers = 8;
  OptimConfig& o = config.optim;
  o.scale_by_width = o.scale_by_batch = o.decay_by_depth = o.decay_to_zero = true;
  o.embedding_lr = 0.3;
  o.head_lr = 0.004;
  o.residual_lr = 0.005;
  o.matrix_lr = 0.01;
  o.matrix_weight_decay = 0.05;
  const Rates rates(config);
  const double batch = std::sqrt(0.5), width = std::sqrt(768.0 / 1152);
  EXPECT_DOUBLE_EQ(rates.of(param_of(Role::kEmbedding), 3).lr, 0.3 * width * batch);
  EXPECT_DOUBLE_EQ(rates.of(param_of(Role::kHead), 3).lr, 0.004 * width * batch);
  EXPECT_DOUBLE_EQ(rates.of(param_of(Role::kResidual), 3).lr, 0.005 * batch);
  const Rate matrix = rates.of(param_of(Role::kBody, Owner::kMatrix), 25);
  EXPECT_DOUBLE_EQ(matrix.lr, 0.01 * batch);
  EXPECT_DOUBLE_EQ(matrix.weight_decay, 0.05 * 2.25 * 0.75);
}

// Frozen for a tenth, up over 10 steps, down to a half at the end.
TEST(Rates, KappaHasACourseOfItsOwn) {
  Config config = config_of(100);
  OptimConfig& o = config.optim;
  o.kappa_lr = 0.12;
  o.kappa_lr_end = 0.06;
  o.kappa_freeze = 0.1;
  o.kappa_warmup_steps = 10;
  const Param kappa = param_of(Role::kKappa);
  const Rates rates(config);
  EXPECT_TRUE(rates.of(kappa, 9).frozen);
  EXPECT_FALSE(rates.of(kappa, 10).frozen);
  EXPECT_DOUBLE_EQ(rates.of(kappa, 10).lr, 0.012);
  EXPECT_DOUBLE_EQ(rates.of(kappa, 19).lr, 0.12);
  EXPECT_DOUBLE_EQ(rates.of(kappa, 60).lr, 0.09);
  EXPECT_DOUBLE_EQ(rates.of(kappa, 100).lr, 0.06);
  o.kappa_scaled = true;  // then only the rate is nothing, and the moments move
  EXPECT_FALSE(Rates(config).of(kappa, 9).frozen);
  EXPECT_EQ(Rates(config).of(kappa, 9).lr, 0);
}

TEST(Rates, MomentumRises) {
  Config config = config_of(1000);
  config.optim.momentum_warmup_steps = 300;
  const Rates rates(config);
  const Param matrix = param_of(Role::kBody, Owner::kMatrix);
  EXPECT_DOUBLE_EQ(rates.of(matrix, 0).beta1, 0.85);
  EXPECT_DOUBLE_EQ(rates.of(matrix, 150).beta1, 0.9);
  EXPECT_DOUBLE_EQ(rates.of(matrix, 300).beta1, 0.95);
}

}  // namespace
}  // namespace anabranch
