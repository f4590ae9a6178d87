#include "runtime/models/choice_measures.h"

#include <cmath>

#include "runtime/models/router_measures.h"
#include "tests/runtime/models/moep_case.h"

namespace anabranch {
namespace {

// Of 5 rows, expert 0 holds 0 1 2, expert 1 holds 1 2, expert 2 holds 2.
SlotPlan some_plan() {
  return {5,
          {{0, 3, 5, 6}},
          Tensor::of<int32_t>({6}, {0, 1, 2, 1, 2, 2}),
          Tensor::of<int32_t>({6}, {0, 3, 6, 4, 7, 8})};
}

double value_of(const std::vector<Reading>& all, Metric metric, int layer, int part = 0) {
  for (const Reading& r : all) {
    if (r.metric == metric && r.layer == layer && r.part == part) return r.value;
  }
  return NAN;
}

TEST(ChoiceMeasures, ReadWhoHoldsWhat) {
  const ChoiceMeasures figures(2, 3);
  EXPECT_EQ(figures.places(), 2U + 2U * 9U);
  Measures sums(figures.places());
  // Softmax of a row: 1/4 1/4 1/2; entropy 3/2 ln 2.
  Tensor logits({5, 3}, DType::kF64);
  for (int64_t i = 0; i < 15; ++i) logits.data<double>()[i] = i % 3 == 2 ? std::log(2.0) : 0;
  figures.add(sums, 1, some_plan(), logits);  // nobody asks for detail
  for (size_t i = 0; i < sums.places(); ++i) EXPECT_EQ(sums.at(i), 0) << i;
  sums.detailed = true;
  figures.add(sums, 1, some_plan(), logits);
  std::vector<Reading> all;
  figures.read(all, sums, 0);
  EXPECT_TRUE(all.empty());
  figures.read(all, sums, 1);
  EXPECT_EQ(all.size(), 3U + 4U + 3U);
  for (const auto& [expert, load] : {std::pair{0, 3.0 / 6}, {1, 2.0 / 6}, {2, 1.0 / 6}}) {
    EXPECT_DOUBLE_EQ(value_of(all, Metric::kExpertLoad, 1, expert), load);
  }
  for (const auto& [experts, share] : {std::pair{0, 0.4}, {1, 0.2}, {2, 0.2}, {3, 0.2}}) {
    EXPECT_DOUBLE_EQ(value_of(all, Metric::kExpertsOfToken, 1, experts), share);
  }
  EXPECT_DOUBLE_EQ(value_of(all, Metric::kUnselectedTokens, 1), 0.4);
  // Pairs share 2, 1 and 1 rows; an expert has 2 on average.
  EXPECT_DOUBLE_EQ(value_of(all, Metric::kExpertOverlap, 1), (2.0 + 1 + 1) / 3 / 2);
  EXPECT_NEAR(value_of(all, Metric::kRouterEntropy, 1), 1.5 * std::log(2.0) / std::log(3.0), 1e-12);
  // The same again: figures are shares.
  figures.add(sums, 1, some_plan(), logits);
  std::vector<Reading> again;
  figures.read(again, sums, 1);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_DOUBLE_EQ(again[i].value, all[i].value) << i;
}

TEST(ChoiceMeasures, ExpertsWithoutARow) {
  const ChoiceMeasures figures(1, 2);
  Measures sums(figures.places());
  sums.detailed = true;
  const SlotPlan none{4, {{0, 0, 0}}, Tensor({0}, DType::kI32), Tensor({0}, DType::kI32)};
  figures.add(sums, 0, none, test::full({4, 2}, 0));
  std::vector<Reading> all;
  figures.read(all, sums, 0);
  EXPECT_EQ(value_of(all, Metric::kUnselectedTokens, 0), 1);
  EXPECT_EQ(value_of(all, Metric::kRouterEntropy, 0), 1);
  EXPECT_TRUE(std::isnan(value_of(all, Metric::kExpertLoad, 0)));
  EXPECT_TRUE(std::isnan(value_of(all, Metric::kExpertOverlap, 0)));
}

// Figures of a model's step, in every way to select, with and without recomputation.
TEST(ChoiceMeasures, AModelReportsThem) {
  const Tensor ids = test::some_ids();
  for (const Selection select : {Selection::kEcBatch, Selection::kEcSeq, Selection::kThreshold,
                                 Selection::kPredictor, Selection::kTokenChoice}) {
    std::vector<std::vector<Reading>> of_runs;
    for (const bool recompute : {false, true}) {
      const auto model = test::random_model(select, {}, DType::kF64, recompute);
      Measures measures(model->measure_places(test::kB));
      measures.detailed = true;
      Tape tape;
      tape.backward(model->loss(tape, {ids, ids, 0}, {1, 0, &measures}, 1.0 / 27));
      model->end_step(measures);
      // The thresholds are those after the step.
      const auto readings = model->readings(measures);
      int layer = 0;
      model->visit_buffers([&](const Buffer& b) {
        if (!test::is_threshold(b)) return;
        for (const int e : {0, 1, 2}) {
          EXPECT_EQ(value_of(readings, Metric::kExpertThreshold, layer, e),
                    b.value.data<double>()[e]);
        }
        ++layer;
      });
      of_runs.push_back(readings);
    }
    const std::vector<Reading>& all = of_runs[0];
    ASSERT_EQ(all.size(), of_runs[1].size());
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].value, of_runs[1][i].value) << i;
    const bool by_token = select == Selection::kTokenChoice;
    const bool learns = by_token || select == Selection::kPredictor;
    EXPECT_EQ(value_of(all, Metric::kAuxiliaryLoss, 0) > 0, learns);
    EXPECT_TRUE(std::isnan(value_of(all, Metric::kMaskedTokens, 0)));
    for (const int layer : {0, 1}) {
      double loads = 0, tokens = 0, held = 0;
      for (const int n : {0, 1, 2, 3}) {
        const double share = value_of(all, Metric::kExpertsOfToken, layer, n);
        tokens += share;
        held += n * share;
        if (n < 3) loads += value_of(all, Metric::kExpertLoad, layer, n);
      }
      EXPECT_NEAR(loads, 1, 1e-12);
      EXPECT_NEAR(tokens, 1, 1e-12);
      // One expert a token: all by token choice, on average where experts choose.
      if (select != Selection::kThreshold) {
        EXPECT_NEAR(held, 1, 1e-12);
        EXPECT_EQ(value_of(all, Metric::kUnselectedTokens, layer) == 0, by_token);
        EXPECT_EQ(value_of(all, Metric::kExpertOverlap, layer) == 0, by_token);
      }
      if (select == Selection::kEcBatch) {
        EXPECT_NEAR(value_of(all, Metric::kExpertLoad, layer, 1), 1.0 / 3, 1e-12);
      }
      EXPECT_EQ(std::isnan(value_of(all, Metric::kExpertThreshold, layer)), by_token);
    }
  }
}

}  // namespace
}  // namespace anabranch
