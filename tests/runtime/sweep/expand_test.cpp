// The papers' sweeps: their ids, their sizes as the papers' tables have them, and a training step
// of every point.
#include "runtime/sweep/expand.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/config/validate.h"
#include "runtime/models/registry.h"
#include "tests/runtime/sweep/sweeps.h"
#include "tests/runtime/training.h"

namespace anabranch {
namespace {

using test::point_called;
using test::tree_sweep;
using testing::ElementsAreArray;

using Ids = std::vector<std::string>;

constexpr std::array<const char*, 5> kSweeps{"cmollm", "cmollm-lr", "cmollm-sensitivity", "kappa",
                                             "moep"};

const Ids kSizes{"85m", "350m", "760m"};
const Ids kVariants{"linear", "simple", "context_aware", "multi_head", "adaptive"};
const Ids kStreams{"1", "2", "4", "8"};

Ids points_of(const Sweep& sweep) {
  Ids ids;
  for (const SweepPoint& point : sweep.points) ids.push_back(point.id);
  return ids;
}

// A run of another id starts anew where one of this id would go on.
TEST(Sweeps, IdsAreTheseForGood) {
  Ids dense, streams, widened, parascale, altup;
  for (const std::string& size : kSizes) {
    dense.push_back(size + "-dense");
    for (const std::string& variant : kVariants) {
      for (const std::string& n : kStreams) {
        streams.push_back(size + "-" + variant + "-n" + n);
        if (variant == "linear" && n == "1") continue;
        widened.push_back(size + "-widened-" + variant + "-n" + n);
      }
    }
    for (const char* n : {"2", "4", "8"}) parascale.push_back(size + "-parascale-n" + n);
    for (const char* form : {"altup", "altup-recycled"}) {
      for (const char* k : {"2", "4"}) altup.push_back(size + "-" + form + "-k" + k);
    }
  }
  Ids all = dense;
  for (const Ids& more : {streams, widened, parascale, altup}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  const Sweep cmollm = tree_sweep("cmollm");
  EXPECT_THAT(points_of(cmollm), ElementsAreArray(all));
  EXPECT_EQ(cmollm.runs.size(), 3 * all.size());
  EXPECT_EQ(cmollm.runs[4].id, "350m-dense-s2");

  Ids depths;
  for (const std::vector<int>& group : {std::vector<int>{8, 10, 12, 14}, {16, 20, 24, 28}}) {
    for (const char* form : {"base", "kappa", "no-alpha", "no-b"}) {
      for (const int depth : group) depths.push_back(join("d", depth, "-", form));
    }
  }
  EXPECT_THAT(points_of(tree_sweep("kappa")), ElementsAreArray(depths));
  EXPECT_EQ(tree_sweep("kappa").runs.back().id, "d28-no-b-s28");
  EXPECT_THAT(
      points_of(tree_sweep("moep")),
      ElementsAreArray({"base", "windows-all64", "windows-all16", "windows-all8", "windows-all4",
                        "windows-reversed", "windows-8-8-4-4", "windows-compact", "windows-full",
                        "windows-8-experts", "routing-ec_seq", "routing-threshold",
                        "routing-predictor", "routing-token_choice", "routing-token_choice-top1",
                        "routing-no-global-block", "capacity-0.5", "capacity-1"}));
}

TEST(Sweeps, WhatVariesAloneIsNotTheBase) {
  const Sweep sweep = tree_sweep("cmollm-sensitivity");
  EXPECT_THAT(points_of(sweep),
              ElementsAreArray({"base", "balance-0", "balance-1e-3", "balance-1e-1", "gate-heads-1",
                                "gate-heads-2", "gate-heads-8", "lr-3e-4", "lr-6e-4",
                                "pipeline-beta-0", "pipeline-beta-0.01", "pipeline-beta-0.1"}));
  for (size_t p = 1; p < sweep.points.size(); ++p) {
    for (size_t q = 0; q < p; ++q) {
      EXPECT_NE(dump_config(sweep.points[p].config), dump_config(sweep.points[q].config));
    }
  }
  const Sweep pilot = tree_sweep("cmollm-lr");
  EXPECT_EQ(pilot.points.size(), 30U);
  EXPECT_EQ(pilot.runs.size(), 30U);
  ASSERT_TRUE(pilot.stop_early.has_value());
  EXPECT_EQ(plan_batch(pilot.points[0].config, 1).steps, 1908);
}

TEST(Sweeps, SeedsArePairedByOneOrderOfSamples) {
  for (const char* name : {"cmollm", "cmollm-sensitivity", "kappa", "moep"}) {
    const Sweep sweep = tree_sweep(name);
    std::map<size_t, int64_t> seeds;
    for (const SweepRun& run : sweep.runs) {
      ++seeds[run.point];
      EXPECT_EQ(run_config(sweep, run).data.seed, 1);
      EXPECT_EQ(run_config(sweep, run).run.seed, run.seed);
    }
    for (const auto& [point, count] : seeds) EXPECT_EQ(count, 3) << sweep.points[point].id;
  }
}

// Millions of parameters without embeddings: table 1.5 of the specification, by size and N.
const std::map<std::string, std::vector<double>> kParameters{
    {"85m-n1", {85.07, 99.24, 102.81, 106.33, 101.02}},
    {"85m-n2", {113.42, 127.60, 131.17, 134.68, 129.38}},
    {"85m-n4", {170.14, 184.31, 187.88, 191.40, 186.09}},
    {"85m-n8", {283.57, 297.74, 301.31, 304.83, 299.52}},
    {"350m-n2", {403.12, 453.50, 466.17, 478.69, 459.82}},
    {"350m-n4", {604.69, 655.08, 667.74, 680.27, 661.39}},
    {"350m-n8", {1007.84, 1058.22, 1070.88, 1083.41, 1064.54}},
    {"760m-n2", {906.67, 1019.99, 1048.42, 1076.65, 1034.19}},
    {"760m-n4", {1360.03, 1473.35, 1501.78, 1530.01, 1487.54}},
    {"760m-n8", {2266.73, 2380.05, 2408.49, 2436.71, 2394.25}}};

TEST(Sweeps, ParametersAreThoseOfTheTable) {
  const Sweep sweep = tree_sweep("cmollm");
  for (const auto& [row, expected] : kParameters) {
    const size_t dash = row.find('-');
    for (size_t v = 0; v < kVariants.size(); ++v) {
      const std::string id = row.substr(0, dash) + "-" + kVariants[v] + row.substr(dash);
      const auto count = static_cast<double>(point_called(sweep, id).cost.non_embedding_parameters);
      EXPECT_EQ(std::lround(count * 1e-4), std::lround(expected[v] * 100)) << id;
    }
  }
  const auto dense = [&](const char* size) {
    return point_called(sweep, std::string(size) + "-dense").cost;
  };
  EXPECT_EQ(dense("85m").non_embedding_parameters, 85056000);
  EXPECT_EQ(dense("350m").non_embedding_parameters, 302311424);
  EXPECT_EQ(dense("760m").non_embedding_parameters, 679959552);
  EXPECT_EQ(dense("85m").parameters, 126799104);
  EXPECT_EQ(dense("350m").parameters, 357968896);
  EXPECT_EQ(dense("760m").parameters, 763445760);
}

// Millions of multiply-adds of a token in linear maps without front-ends, and those of attention:
// table 1.6 and the text above it.
TEST(Sweeps, MultiplyAddsAreThoseOfTheTable) {
  const Sweep sweep = tree_sweep("cmollm");
  const std::map<std::string, std::vector<double>> expected{
      {"85m", {123.5, 151.9, 208.5, 321.8}},
      {"350m", {353.5, 454.2, 655.5, 1058.3}},
      {"760m", {756.7, 983.2, 1436.3, 2342.4}}};
  for (const auto& [size, row] : expected) {
    const ModelCost dense = point_called(sweep, size + "-dense").cost;
    EXPECT_EQ(std::lround(dense.linear_macs * 1e-5), std::lround(row[0] * 10)) << size;
    EXPECT_EQ(dense.front_end_macs, 0);
    for (size_t n = 1; n < kStreams.size(); ++n) {
      const ModelCost cost = point_called(sweep, size + "-linear-n" + kStreams[n]).cost;
      const double with_router = cost.linear_macs + cost.front_end_macs;
      EXPECT_EQ(std::lround(with_router * 1e-5), std::lround(row[n] * 10)) << size << kStreams[n];
      EXPECT_EQ(cost.attention_macs, dense.attention_macs);
    }
  }
  EXPECT_EQ(point_called(sweep, "85m-dense").cost.attention_macs, 12.0 * 768 * 4097);
  const double front = 12.0 * (2 * 768 * 768 + 768 * 4);
  EXPECT_EQ(point_called(sweep, "85m-simple-n4").cost.front_end_macs, front);
}

// What is counted is what the model holds.
TEST(Sweeps, EveryPointHoldsTheParametersThatItCounts) {
  for (const char* name : {"cmollm", "kappa", "moep"}) {
    const Sweep sweep = tree_sweep(name);
    for (const SweepPoint& point : sweep.points) {
      int64_t count = 0;
      make_model(point.config, sweep.vocabulary)->visit([&](Param& p) {
        count += p.shape.count();
      });
      EXPECT_EQ(point.cost.parameters, count) << name << " " << point.id;
    }
  }
}

TEST(Sweeps, AWidenedPointIsWithinAWidthOf8OfWhatItMatches) {
  for (const SweepScale scale : {SweepScale::kFull, SweepScale::kTiny}) {
    const Sweep sweep = tree_sweep("cmollm", {.scale = scale});
    int64_t widened = 0;
    for (const SweepPoint& point : sweep.points) {
      if (point.family != "widened") continue;
      ++widened;
      const ModelConfig& model = point.config.model;
      EXPECT_EQ(model.type, ModelType::kGpt2);
      EXPECT_EQ(model.ffn_width % 8, 0);
      const double of_a_unit = static_cast<double>(model.layers * 2 * model.width);
      const double target = point_called(sweep, point.matches).cost.macs();
      EXPECT_LE(std::abs(point.cost.macs() - target), 4 * of_a_unit) << point.id;
      EXPECT_EQ(width_for_macs(point.config, sweep.vocabulary, target), model.ffn_width);
    }
    EXPECT_EQ(widened, 57);
  }
  // By hand: 4 kernels and the router of 4 in place of one, over W_1 and W_2 of a dense layer.
  const Sweep sweep = tree_sweep("cmollm");
  EXPECT_EQ(point_called(sweep, "85m-widened-linear-n4").config.model.ffn_width, 3072 * 5 / 2);
  EXPECT_EQ(point_called(sweep, "85m-widened-simple-n2").config.model.ffn_width,
            3072 * 3 / 2 + 768);
}

TEST(Sweeps, DepthsOfKappaAreThoseOfThePaper) {
  const Sweep sweep = tree_sweep("kappa");
  const std::map<std::string, double> billions{
      {"d8-base", 2.902},  {"d10-base", 3.523}, {"d12-base", 4.507}, {"d14-base", 4.428},
      {"d16-base", 1.957}, {"d20-base", 3.262}, {"d24-base", 5.007}, {"d28-base", 7.247}};
  for (const auto& [id, expected] : billions) {
    const auto count = static_cast<double>(point_called(sweep, id).cost.parameters);
    EXPECT_EQ(std::lround(count * 1e-6), std::lround(expected * 1000)) << id;
  }
  const int64_t base = point_called(sweep, "d14-base").cost.parameters;
  const int64_t kappa = point_called(sweep, "d14-kappa").cost.parameters;
  EXPECT_EQ(kappa - base, 10 * 16 * 2 * 5632);
  EXPECT_EQ(point_called(sweep, "d14-no-b").cost.parameters - base, 10 * 16 * 5632);
}

TEST(Sweeps, TheBaseOfMoepHasThePapersParameters) {
  EXPECT_EQ(point_called(tree_sweep("moep"), "base").cost.parameters, 52624896);
}

// Sizes that differ from another in nothing else, which is trained.
bool is_larger_twin(const std::string& id) {
  for (const char* size : {"350m-", "760m-", "d10-", "d12-", "d14-", "d20-", "d24-", "d28-"}) {
    if (id.starts_with(size)) return true;
  }
  return false;
}

// Every point of a sweep at its tiny size, of several sizes the smallest. Without AB_ALL_POINTS
// every third of them: a neighbour differs in one key, and all take longer than a default run may.
TEST(Sweeps, EveryTinyPointTrainsAStep) {
  const size_t every = std::getenv("AB_ALL_POINTS") != nullptr ? 1 : 3;
  size_t number = 0;
  const test::TrainingFolder folder;
  SweepOptions options{.scale = SweepScale::kTiny};
  options.sets = {"data.path=" + (folder / "data").string(), "train.steps=1", "metrics.listen=off"};
  for (const char* name : kSweeps) {
    const Sweep sweep = tree_sweep(name, options);
    for (const SweepPoint& point : sweep.points) {
      if (is_larger_twin(point.id) || number++ % every != 0) continue;
      Config config = point.config;
      config.run.dir = (folder / (std::string(name) + "-" + point.id)).string();
      const test::Training training = test::run_training(config);
      ASSERT_EQ(training.codes, std::vector<int>{0}) << point.id;
      ASSERT_EQ(training.losses().size(), 1U) << point.id;
      EXPECT_TRUE(std::isfinite(training.losses()[0])) << point.id;
    }
  }
}

// The kinds of parts stay what they are.
TEST(Sweeps, TinyKeepsVariantsAndCounts) {
  const Sweep full = tree_sweep("cmollm"),
              tiny = tree_sweep("cmollm", {.scale = SweepScale::kTiny});
  ASSERT_EQ(points_of(full), points_of(tiny));
  for (size_t p = 0; p < full.points.size(); ++p) {
    const ModelConfig &large = full.points[p].config.model, &small = tiny.points[p].config.model;
    EXPECT_EQ(small.type, large.type);
    EXPECT_EQ(small.cmollm, large.cmollm);
    EXPECT_EQ(small.altup, large.altup);
    EXPECT_EQ(small.parascale.streams, large.parascale.streams);
    EXPECT_LT(tiny.points[p].cost.non_embedding_parameters, 2000000) << full.points[p].id;
  }
  const int64_t by_size[] = {tiny.points[0].config.model.width, tiny.points[1].config.model.width,
                             tiny.points[2].config.model.width};
  EXPECT_LT(by_size[0], by_size[1]);
  EXPECT_LT(by_size[1], by_size[2]);
}

}  // namespace
}  // namespace anabranch
