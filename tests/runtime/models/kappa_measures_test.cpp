#include "runtime/models/kappa_measures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/runtime/training.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

// Two experts of two hidden units over two channels, their up rows far from all others.
struct Layer {
  Tensor router = Tensor::of<double>({2, 2}, {2, 0, 0, 1});
  Tensor in = Tensor::of<double>({2, 4, 2}, {1, 0, -1, 1, 99, 99, 99, 99,  //
                                             0, 4, 1, 0, 99, 99, 99, 99});
  Tensor alpha = Tensor::of<double>({2, 2}, {0.5, 0, -1, 0});
  Tensor b = Tensor::of<double>({2, 2}, {0, 0.25, 0, 0});

  [[nodiscard]] GateWeights weights(bool with_kappa = true) const {
    return {router, in, with_kappa ? &alpha : nullptr, with_kappa ? &b : nullptr, Kappa{}};
  }
};

// Slots of logits 4 and 2 for expert 0, and of 1 for expert 1.
TopKRoute some_route() {
  return top_k_route(Tensor::of<double>({3, 2}, {4, 0, 2, 0, 0, 1}), {.k = 1});
}

std::map<Metric, double> readings_of(const KappaMeasures& figures, const Measures& sums,
                                     const GateWeights& weights) {
  std::vector<Reading> readings;
  figures.read(readings, sums, 1, weights);
  std::map<Metric, double> values;
  for (const Reading& r : readings) {
    EXPECT_EQ(r.layer, 1);
    values[r.metric] = r.value;
  }
  return values;
}

Measures some_sums(const KappaMeasures& figures) {
  Measures sums(3, figures.places());
  sums.detailed = true;
  return sums;
}

// cosines 1, -1 / sqrt 2, 1, 0; biases +-2, +-1 (products +-2 over |r|^2 = 4), 4 and 0; inside
// tanh 2 and 1, twice 0.25, -1 and 0.
TEST(KappaMeasures, ByHand) {
  const KappaMeasures figures(3, 2, 2);
  Measures sums = some_sums(figures);
  figures.add(sums, 1, some_route());
  const Layer layer;
  auto values = readings_of(figures, sums, layer.weights());
  EXPECT_EQ(values.size(), 8U);
  const double diagonal = std::sqrt(0.5);
  EXPECT_DOUBLE_EQ(values[Metric::kRouterGateCosine], (2 - diagonal) / 4);
  EXPECT_DOUBLE_EQ(values[Metric::kRouterGateAlignment], (2 + diagonal) / 4);
  EXPECT_EQ(values[Metric::kInducedBiasLow], -2);
  EXPECT_EQ(values[Metric::kInducedBiasMedian], 0);
  EXPECT_EQ(values[Metric::kInducedBiasHigh], 4);
  EXPECT_NEAR(values[Metric::kKappaLow], 0.433139, 5e-7);  // 3^tanh(-1)
  EXPECT_DOUBLE_EQ(values[Metric::kKappaMedian], std::pow(3, std::tanh(0.25)));
  EXPECT_DOUBLE_EQ(values[Metric::kKappaHigh], std::pow(3, std::tanh(2)));
  std::vector<Reading> other;
  figures.read(other, sums, 0, layer.weights());  // a layer in which nothing was counted
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(readings_of(figures, sums, layer.weights(false)).size(), 5U);
}

TEST(KappaMeasures, ScalesAndRangeOfKappa) {
  const KappaMeasures figures(3, 2, 2);
  Measures sums = some_sums(figures);
  figures.add(sums, 1, some_route());
  const Layer layer;
  GateWeights weights = layer.weights();
  weights.kappa = {.upper = 2, .score_scale = 0.5, .bias_scale = 4};
  auto values = readings_of(figures, sums, weights);  // 1, 0.5, 1, 1, -0.5, 0
  EXPECT_DOUBLE_EQ(values[Metric::kKappaLow], std::pow(2, std::tanh(-0.5)));
  EXPECT_DOUBLE_EQ(values[Metric::kKappaMedian], std::pow(2, std::tanh(0.5)));
  EXPECT_DOUBLE_EQ(values[Metric::kKappaHigh], std::pow(2, std::tanh(1)));
}

// Before alpha and b move, kappa is 1 and nothing else; a logit beyond all steps still counts as
// it is, if it is the only one there.
TEST(KappaMeasures, NothingLearnedAndLogitsFarOut) {
  const KappaMeasures figures(3, 2, 2);
  Measures sums = some_sums(figures);
  figures.add(sums, 1, top_k_route(Tensor::of<double>({2, 2}, {-90, -100, 0, 40}), {.k = 1}));
  Layer layer;
  layer.alpha.fill_zero();
  layer.b.fill_zero();
  auto values = readings_of(figures, sums, layer.weights());
  for (const Metric m : {Metric::kKappaLow, Metric::kKappaMedian, Metric::kKappaHigh}) {
    EXPECT_EQ(values[m], 1);
  }
  EXPECT_EQ(values[Metric::kInducedBiasHigh], 160);
  EXPECT_NEAR(values[Metric::kInducedBiasLow], -45, 160.0 / figures.kResolution);
}

TEST(KappaMeasures, CostNothingWhereNobodyAsks) {
  const KappaMeasures figures(3, 2, 2);
  Measures sums(3, figures.places());
  figures.add(sums, 1, some_route());
  EXPECT_EQ(sums.sums().size(), 3U);
  for (size_t i = 0; i < sums.places(); ++i) EXPECT_EQ(sums.at(i), 0);
}

bool is_percentile(Metric metric) {
  constexpr std::array kAll{Metric::kInducedBiasLow,  Metric::kInducedBiasMedian,
                            Metric::kInducedBiasHigh, Metric::kKappaLow,
                            Metric::kKappaMedian,     Metric::kKappaHigh};
  return std::ranges::find(kAll, metric) != kAll.end();
}

// What a whole run reports does not depend on how many ranks share it, nor on what it logs.
TEST(KappaMeasures, EqualOnOneAndTwoRanks) {
  const test::TrainingFolder folder;
  const auto readings = [&](int ranks, int64_t log_every) {
    Config config = folder.config(join("run-", ranks, "-", log_every), 4);
    config.model.type = ModelType::kKappaMoe;
    config.model.kappa.experts = 4;
    config.model.kappa.moe_first = 1;
    config.optim.weight_decay = 0;
    config.train.precision = Precision::kFp64;
    config.train.log_every = log_every;
    return test::run_training(config, {.ranks = ranks}).steps.front().back().readings;
  };
  const std::vector<Reading> alone = readings(1, 1);
  // Gradients between ranks are rounded to float32, which may move a value to the next place.
  constexpr double step = 2.0 / KappaMeasures::kResolution;
  EXPECT_EQ(alone.size(), 1U + 4 + 2 + 8 + 2);  // losses, loads, drops and entropy, gates, slopes
  for (const std::vector<Reading>& other : {readings(2, 1), readings(1, 4)}) {
    ASSERT_EQ(other.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(other[i].metric, alone[i].metric);
      EXPECT_NEAR(other[i].value, alone[i].value,
                  is_percentile(alone[i].metric) ? step : test::kLayouts.relative)
          << static_cast<int>(alone[i].metric);
    }
  }
}

}  // namespace
}  // namespace anabranch
