#include "runtime/config/validate.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/config/kappa_recipe.h"
#include "runtime/config/validate_parallel.h"
#include "tests/support/refusal.h"

namespace anabranch {

namespace {

using testing::HasSubstr;

const char* const kGood =
    "data: {path: d}\n"
    "model: {layers: 2, width: 8, heads: 2, context: 16}\n"
    "train: {steps: 10, batch_tokens: 64, micro_batch: 2}\n";

std::string refusal(const std::vector<std::string>& sets) {
  return test::refusal([&] { validate(parse_config(kGood, "c.yaml", sets)); });
}

TEST(Validate, Accepts) { EXPECT_EQ(refusal({}), "accepted"); }

TEST(Validate, RefusesWithNumbers) {
  EXPECT_THAT(refusal({"model.heads=3"}),
              HasSubstr("model.width 8 is not a multiple of model.hea"));
  EXPECT_THAT(refusal({"model.layers=0"}), HasSubstr("model.layers is not set"));
  EXPECT_THAT(refusal({"train.tokens=100"}), HasSubstr("train.steps, train.tokens are set"));
  EXPECT_THAT(refusal({"train.steps=0", "train.tokens=100", "train.epochs=2"}),
              HasSubstr("train.tokens, train.epochs are set"));
  EXPECT_THAT(refusal({"train.steps=0"}),
              HasSubstr("none of train.steps, train.tokens and train.epochs is set"));
  EXPECT_EQ(refusal({"train.steps=0", "train.epochs=0.5"}), "accepted");
  EXPECT_THAT(refusal({"checkpoint.words=[10, 20, 20]"}),
              HasSubstr("checkpoint.words is not rising: 20 comes before 20"));
  EXPECT_THAT(refusal({"train.batch_tokens=0"}), HasSubstr("train.batch_tokens is not set"));
  EXPECT_THAT(refusal({"optim.warmup_steps=11"}), HasSubstr("11 is more than the 10 steps"));
  EXPECT_THAT(refusal({"train.steps=0", "train.tokens=65", "optim.warmup_steps=3"}),
              HasSubstr("3 is more than the 2 steps"));
  EXPECT_THAT(refusal({"data.path=\"\""}), HasSubstr("data.path is not set"));
  EXPECT_THAT(refusal({"data.sources=[{name: a}, {name: a}]"}), HasSubstr("names a twice"));
  EXPECT_THAT(refusal({"data.sources=[{weight: 2}]"}), HasSubstr("has no name"));
  EXPECT_THAT(refusal({"train.precision=fp64", "device=cuda"}), HasSubstr("CPU only"));
  EXPECT_THAT(refusal({"train.precision=fp64", "train.grad_wire=bf16"}), HasSubstr("fp64"));
  EXPECT_THAT(refusal({"checkpoint.keep_every=10"}), HasSubstr("every_steps, which is 0"));
  EXPECT_THAT(refusal({"checkpoint.keep_every=10", "checkpoint.every_steps=4"}),
              HasSubstr("10 is not a multiple of checkpoint.every_steps 4"));
  EXPECT_THAT(refusal({"parallel.model=2"}), HasSubstr("parallel.model is 2"));
  EXPECT_THAT(refusal({"run.name=a/b"}), HasSubstr("run.name is \"a/b\""));
  for (const char* bad : {"9464", ":9464", "host:x", "host:65536", "host:-1", "host:"}) {
    EXPECT_THAT(refusal({std::string("metrics.listen=\"") + bad + '"'}), HasSubstr("host:port"));
  }
  EXPECT_EQ(refusal({"metrics.listen=off"}), "accepted");
}

TEST(Validate, CopiesOfTheInputStayWhole) {
  for (const char* family : {"parascale", "cmollm"}) {
    const auto refused = [&](std::vector<std::string> sets) {
      sets.insert(sets.begin(), {std::string("model.type=") + family, "model.streams=3"});
      if (family == std::string("cmollm")) sets.emplace_back("model.mode=pipeline");
      return refusal(sets);
    };
    EXPECT_EQ(refused({"parallel.model=3"}), "accepted");
    EXPECT_THAT(refused({"parallel.model=4"}), HasSubstr("more than model.streams 3"));
    EXPECT_THAT(refused({"parallel.model=2", "parallel.stream_layout=slice"}),
                HasSubstr("stay whole: use auto or gather"));
  }
}

TEST(Validate, ExpertsOfKappaMoe) {
  const auto refused = [](std::vector<std::string> sets) {
    sets.insert(sets.begin(), {"model.type=kappa_moe", "model.layers=4"});
    return refusal(sets);
  };
  EXPECT_EQ(refused({}), "accepted");
  EXPECT_THAT(refused({"model.top_k=9"}), HasSubstr("model.top_k 9 is more than model.experts 8"));
  EXPECT_THAT(refused({"model.kappa_range=9"}), HasSubstr("model.kappa_range 9 is more than 8"));
  EXPECT_THAT(refused({"model.softcap=1e-300"}), HasSubstr("give at least 0.1, or 0 for none"));
  EXPECT_THAT(refused({"model.moe_first=4"}), HasSubstr("4 is not below model.layers 4"));
  EXPECT_THAT(refused({"model.moe_layers=3"}), HasSubstr("2 and model.moe_layers 3 go beyond"));
  EXPECT_EQ(refused({"model.moe_first=9", "model.sandwich=true"}), "accepted");
  EXPECT_THAT(refused({"model.layers=1", "model.sandwich=true"}), HasSubstr("at least 2"));
  EXPECT_THAT(refused({"model.width=6"}), HasSubstr("heads of width 3, must be even"));
  EXPECT_THAT(refused({"model.pool_sequences=3"}),
              HasSubstr("micro_batch 2 and model.pool_sequences 3: one must be a multiple"));
}

TEST(Validate, ReportsAllRules) {
  const std::string all = refusal({"model.heads=3", "train.steps=0"});
  EXPECT_THAT(all, HasSubstr("model.width"));
  EXPECT_THAT(all, HasSubstr("train.steps"));
}

TEST(PlanBatch, DividesOrNamesTheNearest) {
  const Config config = parse_config(kGood, "c.yaml");
  const BatchPlan one = plan_batch(config, 1);
  EXPECT_EQ(one.sequences, 4);
  EXPECT_EQ(one.accumulation, 2);
  EXPECT_EQ(one.steps, 10);
  EXPECT_EQ(plan_batch(config, 2).accumulation, 1);
  const auto refused = [&](int64_t batch, int64_t ranks) {
    Config other = config;
    other.train.batch_tokens = batch;
    return test::refusal([&] { plan_batch(other, ranks); });
  };
  EXPECT_EQ(refused(250, 3),
            "train.batch_tokens 250 is not a multiple of model.context 16 x train.micro_batch 2 "
            "x 3 ranks = 96; nearest legal values: 192 and 288");
  EXPECT_THAT(refused(64, 4), HasSubstr("nearest legal values: 128, or train.micro_batch 1"));
}

TEST(Validate, FamiliesHaveRulesOfTheirOwn) {
  EXPECT_THAT(refusal({"model.type=cmollm", "model.variant=multi_head", "model.gate_heads=3"}),
              HasSubstr("model.width 8 is not a multiple of model.gate_heads 3"));
  EXPECT_THAT(
      refusal({"model.type=cmollm", "model.variant=adaptive", "model.width=6", "model.heads=2"}),
      HasSubstr("model.width 6 is not a multiple of 4"));
  EXPECT_THAT(refusal({"model.type=parascale", "model.dropout=0.1"}), HasSubstr("model.dropout"));
  EXPECT_THAT(refusal({"model.type=moep_msit", "model.pool_sequences=15"}),
              HasSubstr("model.pool_sequences 15"));
  EXPECT_THAT(refusal({"model.type=kappa_moe", "model.top_k=9"}), HasSubstr("model.top_k 9"));
  const auto unread = [](const std::string& set, const std::string& type) {
    return test::refusal([&] { parse_config(kGood, "c.yaml", {"model.type=" + type, set}); });
  };
  EXPECT_THAT(unread("model.streams=0", "cmollm"), HasSubstr("model.streams"));
  EXPECT_THAT(unread("model.windows=[4, 0]", "moep_msit"), HasSubstr("model.windows"));
  EXPECT_THAT(unread("model.variant=round", "cmollm"), HasSubstr("model.variant"));
  EXPECT_THAT(unread("model.streams=4", "gpt2"),
              HasSubstr("model.streams is a key of cmollm, parascale models"));
}

TEST(PlanBatch, TokensRoundUpToWholeSteps) {
  const Config config = parse_config(kGood, "c.yaml", {"train.steps=0", "train.tokens=129"});
  EXPECT_EQ(plan_batch(config, 1).steps, 3);
}

TEST(Configs, EveryShippedFileIsValidOnTwoRanks) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(AB_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const Config config = load_config(entry.path());
    EXPECT_NO_THROW(validate(config)) << entry.path();
    const bool one_pool = config.model.type == ModelType::kMoepMsit &&
                          config.model.moep.pool_sequences * config.model.context ==
                              config.train.batch_tokens;  // a pool is not cut among ranks
    EXPECT_NO_THROW(plan_batch(config, one_pool ? 1 : 2)) << entry.path();
    if (is_recipe(config.model.preset)) {
      EXPECT_EQ(join("kappa-d", config.model.kappa.depth), config.run.name) << entry.path();
    }
  }
  EXPECT_GE(files, 4);
}

TEST(Validate, WhatKeepsStreamsFromBeingSlicedIsNamed) {
  const auto refused = [](const std::string& set) {
    return refusal({"model.type=cmollm", "parallel.model=3", "parallel.stream_layout=slice",
                    "model.ffn_width=60", set});
  };
  EXPECT_EQ(refused("model.streams=4"), "accepted");
  EXPECT_THAT(refused("model.mix=post"), HasSubstr("slice, and model.mix is post: use gather"));
  EXPECT_THAT(refused("model.ffn_width=64"),
              HasSubstr("parallel.model 3 does not divide model.ffn_width 64 (nearest 63 and 66)"));
}

TEST(Validate, ARunOfAnyLayoutAsksForWhatRanksDoNotMatterTo) {
  const auto refused = [](std::vector<std::string> sets) {
    sets.insert(sets.begin(), {"train.deterministic=layout", "train.micro_batch=1"});
    return refusal(sets);
  };
  EXPECT_EQ(refused({}), "accepted");
  EXPECT_EQ(refused({"train.precision=fp64"}), "accepted");
  EXPECT_THAT(refused({"train.precision=bf16"}), HasSubstr("train.precision is bf16: use fp32"));
  EXPECT_THAT(refused({"train.grad_wire=bf16"}), HasSubstr("train.grad_wire is bf16: use fp32"));
  EXPECT_THAT(refused({"train.micro_batch=2"}), HasSubstr("train.micro_batch is 2: use 1"));
  EXPECT_THAT(refused({"model.type=kappa_moe", "model.pool_sequences=2"}),
              HasSubstr("model.pool_sequences is 2: use 1"));
  EXPECT_THAT(refused({"model.type=cmollm", "model.streams=6"}),
              HasSubstr("model.streams is 6: use a power of two"));
  EXPECT_THAT(refused({"model.type=cmollm", "parallel.stream_layout=slice"}),
              HasSubstr("parallel.stream_layout is slice: use gather or auto"));
  EXPECT_THAT(refused({"model.type=kappa_moe", "model.experts=6", "parallel.model=4"}),
              HasSubstr("parallel.model is 4 beside model.experts 6"));
  EXPECT_EQ(refused({"model.type=cmollm", "model.streams=4", "parallel.model=4"}), "accepted");
  EXPECT_THAT(refused({"model.type=parascale", "model.streams=2", "parallel.model=2"}),
              HasSubstr("copies of the input on several ranks, and parallel.model is 2"));
  EXPECT_THAT(refused({"model.type=cmollm", "model.mode=pipeline", "parallel.model=2"}),
              HasSubstr("copies of the input on several ranks, and parallel.model is 2"));

  Config config =
      parse_config(kGood, "c.yaml",
                   {"train.deterministic=layout", "train.micro_batch=1", "train.batch_tokens=768"});
  EXPECT_NO_THROW(check_ranks(config, 8));
  EXPECT_THROW(check_ranks(config, 3), Error);
  EXPECT_THROW(check_ranks(config, 16), Error);
  config.model.type = ModelType::kKappaMoe;
  config.model.kappa.experts = 6;
  EXPECT_EQ(legal_model_sizes(config, 8), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace anabranch
