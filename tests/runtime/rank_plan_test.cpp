#include "runtime/rank_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "runtime/run_data.h"
#include "tests/data/folder.h"
#include "tests/runtime/training.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

constexpr double kGib = 0x1p30;

// A model of eight experts, of which `parallel.model` may be 1 to 8.
Config mixture(const std::string& model = "auto", int64_t batch = 0, int64_t ranks = 1) {
  Config config = parse_config(
      "model: {type: kappa_moe, layers: 1, width: 16, heads: 2, context: 8, experts: 8, top_k: 2}\n"
      "train: {steps: 1, micro_batch: 1}\n"
      "parallel: {model: " +
          model + "}\n",
      "plan");
  config.train.batch_tokens = batch > 0 ? batch : 8 * ranks;
  return config;
}

// Words as hosts by rank, each of 16 GiB and 2 threads a rank.
std::vector<RankPlace> on(const std::vector<std::string>& hosts) {
  std::vector<RankPlace> places;
  for (const std::string& host : hosts) places.push_back({host, 2, 16 * kGib});
  return places;
}

// A model of which `common` bytes are on every rank and `split` are dealt over `model`.
NeedOf need(double common, double split) {
  return [=](const MeshShape& shape) {
    MemoryNeed n;
    n.weights = common + split / shape.model;
    return n;
  };
}

RankPlan planned(const std::vector<std::string>& hosts, const std::string& model,
                 const NeedOf& of = need(kGib, 0)) {
  const Config config = mixture(model, 0, std::ssize(hosts));
  return plan_ranks(config, on(hosts), of);
}

struct Placement {
  std::vector<std::string> hosts;  // by launched rank
  std::string model;
  std::vector<int> order;  // expected, as all below
  int data, model_ranks;
  bool crosses;
};

TEST(RankPlan, RanksOfAHostAreNeighboursWhateverThePlacement) {
  const std::vector<Placement> table{
      {{"a"}, "auto", {0}, 1, 1, false},
      {{"a", "a", "b", "b"}, "2", {0, 1, 2, 3}, 2, 2, false},                  // block
      {{"a", "b", "a", "b"}, "2", {0, 2, 1, 3}, 2, 2, false},                  // round-robin
      {{"a", "b", "c", "a", "b", "c"}, "2", {0, 3, 1, 4, 2, 5}, 3, 2, false},  // over three
      {{"b", "a", "b", "b", "a", "b"}, "2", {0, 2, 3, 5, 1, 4}, 3, 2, false},  // 4 and 2
      {{"a", "b", "b"}, "3", {0, 1, 2}, 1, 3, true},                           // 1 and 2
      {{"a", "a", "a", "b", "b", "b"}, "2", {0, 1, 2, 3, 4, 5}, 3, 2, true},   // 3 and 3
      {{"a", "a", "a", "b", "b", "b"}, "3", {0, 1, 2, 3, 4, 5}, 2, 3, false},
      {{"a", "b", "a", "b", "a"}, "5", {0, 2, 4, 1, 3}, 1, 5, true},  // 3 and 2
      {{"a", "b", "a", "b", "a", "b", "a"}, "7", {0, 2, 4, 6, 1, 3, 5}, 1, 7, true},
      {{"a", "b", "a", "b", "a", "b", "a"}, "auto", {0, 2, 4, 6, 1, 3, 5}, 7, 1, false}};
  for (const Placement& p : table) {
    const RankPlan plan = planned(p.hosts, p.model);
    EXPECT_EQ(plan.order, p.order);
    EXPECT_EQ(plan.order.front(), 0);  // who writes for all
    EXPECT_EQ(plan.shape.data, p.data);
    EXPECT_EQ(plan.shape.model, p.model_ranks);
    EXPECT_EQ(plan.crosses_hosts, p.crosses);
    EXPECT_EQ(plan.reordered(), !std::ranges::is_sorted(p.order));
  }
}

TEST(RankPlan, AutoSplitsOnlyWhatDoesNotFit) {
  const std::vector<std::string> eight{"a", "b", "a", "b", "a", "b", "a", "b"};
  const auto chosen = [&](const NeedOf& of) { return planned(eight, "auto", of); };
  // Four ranks of a host have 16 GiB.
  const RankPlan whole = chosen(need(1 * kGib, 3 * kGib));
  EXPECT_EQ(whole.shape.model, 1);
  EXPECT_THAT(whole.why_model,
              HasSubstr("auto: the training state of a rank fits, 4 GiB for each of 4 ranks on a, "
                        "which has 16 GiB"));
  EXPECT_EQ(chosen(need(1 * kGib, 4 * kGib)).shape.model, 2);
  const RankPlan four = chosen(need(1 * kGib, 12 * kGib));
  EXPECT_EQ(four.shape.model, 4);
  EXPECT_FALSE(four.crosses_hosts);
  EXPECT_THAT(four.why_model, HasSubstr("auto: 1 does not fit, 13 GiB"));
  const RankPlan eight_ways = chosen(need(1 * kGib, 24 * kGib));
  EXPECT_EQ(eight_ways.shape.model, 8);
  EXPECT_TRUE(eight_ways.crosses_hosts);
  EXPECT_THAT(eight_ways.why_model, HasSubstr("none that fits keeps its groups within a host"));
}

TEST(RankPlan, AutoPrefersGroupsWithinAHost) {
  // Three ranks a host: 2 would do, 3 stays within.
  const RankPlan plan = planned({"a", "a", "a", "b", "b", "b"}, "auto", need(1 * kGib, 8 * kGib));
  EXPECT_EQ(plan.shape.model, 3);
  EXPECT_FALSE(plan.crosses_hosts);
}

TEST(RankPlan, TheTightestHostDecides) {
  std::vector<RankPlace> places = on({"a", "a", "b", "b"});
  places[3].memory = 2 * kGib;
  const RankPlan plan = plan_ranks(mixture("auto", 0, 4), places, need(0.5 * kGib, 1 * kGib));
  EXPECT_EQ(plan.shape.model, 2);
  EXPECT_EQ(plan.least_memory, 2 * kGib);
  EXPECT_THAT(plan.why_model, HasSubstr("2 ranks on b, which has 2 GiB"));
}

TEST(RankPlan, WhatNothingFitsIsRefusedWithTheNumbers) {
  for (const char* model : {"auto", "2"}) {
    test::expect_error(Fault::kConfig, {"does not fit this machine", "the 2 ranks here", "16 GiB"},
                       [&] {
                         planned({"a", "a"}, model, need(20 * kGib, 4 * kGib));
                       });
  }
}

TEST(RankPlan, WhatDoesNotComeOutEvenIsRefusedWithTheLegalValues) {
  const auto six = on({"a", "a", "a", "b", "b", "b"});
  test::expect_error(
      Fault::kConfig,
      {"parallel.model is 4", "6 ranks and model.experts 8", "legal values: 1, 2, 3, 6"},
      [&] { plan_ranks(mixture("4", 48), six, need(kGib, 0)); });
  test::expect_error(Fault::kConfig, {"train.batch_tokens 40", "6 ranks = 48", "nearest"},
                     [&] { plan_ranks(mixture("2", 40), six, need(kGib, 0)); });
  Config pools = mixture("1", 48);
  pools.model.kappa.pool_sequences = 4;
  test::expect_error(Fault::kConfig,
                     {"pool_sequences is 4", "a pool lies on 4 ranks", "train.micro_batch: 2, 4"},
                     [&] { plan_ranks(pools, six, need(kGib, 0)); });
  const auto nine = on(std::vector<std::string>(9, "a"));
  test::expect_error(Fault::kConfig, {"parallel.model is 9", "legal values: 1, 3,"},
                     [&] { plan_ranks(mixture("9", 72), nine, need(kGib, 0)); });
}

TEST(RankPlan, TheNeedIsOfTheShapesThatAreAllocated) {
  const Config config = mixture("auto", 0, 2);
  const MemoryNeed whole = need_of(config, 50)({2, 1, 1});
  EXPECT_GT(whole.parameters, 0);
  EXPECT_GT(whole.total(), 4.0 * 4 * static_cast<double>(whole.parameters));
  EXPECT_LE(need_of(config, 50)({1, 2, 1}).parameters, whole.parameters);
}

TEST(RankPlan, TheTrainingGroupHasTheOrderOfThePlan) {
  run_on_threads(6, [](Group& world) {
    const std::vector<std::string> hosts{"a", "b", "c", "a", "b", "c"};
    const std::string& host = hosts[static_cast<size_t>(world.rank())];
    const int threads = 1 + world.rank() % 2;
    const Config config = mixture("2", 48);
    const std::vector<RankPlace> places = gather_places(world, {host, threads, 16 * kGib});
    const RankPlan plan = plan_ranks(config, places, need(kGib, 0));
    EXPECT_EQ(plan.least_threads, 1);
    EXPECT_EQ(plan.most_threads, 2);
    const std::unique_ptr<Group> training = training_group(world, plan);
    ASSERT_NE(training, nullptr);
    EXPECT_EQ(plan.order[static_cast<size_t>(training->rank())], world.rank());
    const Mesh mesh(*training, plan.shape);
    for (const std::string& other : gather_text(mesh.model(), host)) EXPECT_EQ(other, host);
    EXPECT_EQ(training_group(*training, planned({"a", "a", "a", "a", "a", "a"}, "1")), nullptr);
  });
}

// Before step 0: one build is checked in topology_test, under mpirun in train_hang_test.
TEST(RankPlan, RanksMustHaveOneConfigurationAndOneDataSet) {
  const test::TrainingFolder mine, other(true);
  run_on_threads(3, [&](Group& world) {
    const bool unlike = world.rank() == 2;
    Config config = mine.config("run", 4);
    config.optim.lr = unlike ? 0.5 : 0.25;
    test::expect_error(Fault::kConfig, {"has 'lr: 0.25", "rank 2 on", "has 'lr: 0.5"},
                       [&] { require_same(world, "the configuration", dump_config(config)); });
    config = (unlike ? other : mine).config("run", 4);
    RankContext context;
    context.pool = std::make_shared<Pool>();
    test::expect_error(Fault::kConfig, {"the data set", "differs between ranks", "rank 2"},
                       [&] { RunData(config, plan_batch(config, 3), world, context); });
  });
}

TEST(RankPlan, LossesDoNotDependOnThePlacement) {
  const test::TrainingFolder folder;
  const std::vector<std::vector<std::string>> placements{
      {}, {"a", "b", "a", "b"}, {"a", "b", "b", "a"}, {"a", "b", "c", "b"}};
  std::vector<double> first;
  for (const auto& hosts : placements) {
    test::TrainingOptions options{.ranks = 4};
    options.hosts = hosts;
    const Config config = folder.config(join("run", &hosts - placements.data()), 8);
    const std::vector<double> losses = test::run_training(config, options).losses();
    if (first.empty()) first = losses;
    EXPECT_EQ(losses, first);
  }
}

TEST(RankPlan, TableAndDocumentSayTheSame) {
  RankPlan plan = planned({"h1", "h2", "h1", "h2"}, "2");
  plan.devices.why = "auto: none is here";
  const std::string table = plan_table(plan);
  EXPECT_THAT(table, HasSubstr("  ranks    4 on 2 hosts: h1 2, h2 2\n"));
  EXPECT_THAT(table, HasSubstr("  order    ranks of a host are made neighbours, launched ones are "
                               "0 2 1 3\n"));
  EXPECT_THAT(table, HasSubstr("  threads  2 a rank\n"));
  EXPECT_THAT(table, HasSubstr("  mesh     data 2 x model 2, pools on 1 rank\n"));
  EXPECT_THAT(table, HasSubstr("  model    2, as parallel.model says, 1 GiB for each of 2 ranks"));
  EXPECT_THAT(table, HasSubstr("  device   cpu, auto: none is here\n"));
  RankPlan on_gpus = plan;
  on_gpus.devices.why = "as device says";
  on_gpus.devices.of_rank = {"A100 GPU-1", "H200 GPU-2", "A100 GPU-3", "A100 GPU-4"};
  on_gpus.devices.warnings = {"something is shared"};
  EXPECT_THAT(plan_table(on_gpus), HasSubstr("  device   cuda, as device says; 3 A100, 1 H200; "
                                             "something is shared\n"));
  const auto device = nlohmann::json::parse(rank_plan_json(on_gpus)).at("device");
  EXPECT_EQ(device.at("kind"), "cuda");
  EXPECT_EQ(device.at("of_rank").at(1), "H200 GPU-2");
  EXPECT_EQ(device.at("warnings").at(0), "something is shared");
  const auto json = nlohmann::json::parse(rank_plan_json(plan));
  EXPECT_EQ(json.at("ranks"), 4);
  EXPECT_EQ(json.at("device").at("kind"), "cpu");
  EXPECT_EQ(json.at("hosts").at(1).at("name"), "h2");
  EXPECT_EQ(json.at("order"), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(json.at("model"), 2);
  EXPECT_EQ(json.at("data"), 2);
  EXPECT_EQ(json.at("state_bytes_of_a_rank"), kGib);
  EXPECT_EQ(as_planned(mixture("auto"), plan).parallel.model.value, 2);
}

}  // namespace
}  // namespace anabranch
