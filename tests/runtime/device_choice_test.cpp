#include "runtime/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "parallel/comm/group.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr DeviceWish kAuto{DeviceChoice::kAuto, true};
constexpr DeviceWish kCuda{DeviceChoice::kCuda, true};

Gpu gpu(const std::string& id, int major = 9) {
  return {.name = "NVIDIA H200", .id = "GPU-" + id, .pci = {}, .memory = 1, .major = major};
}

GpuSight sees(const std::vector<std::string>& ids) {
  GpuSight sight;
  for (const std::string& id : ids) sight.gpus.push_back(gpu(id));
  if (ids.empty()) sight.why_none = "no driver";
  return sight;
}

// What each rank of a job gets.
std::vector<DevicePlan> choose(const DeviceWish& wish, const std::vector<std::string>& hosts,
                               const std::vector<GpuSight>& sights) {
  std::vector<DevicePlan> plans(hosts.size());
  run_on_threads(static_cast<int>(hosts.size()), [&](Group& group) {
    const auto me = static_cast<size_t>(group.rank());
    Topology places;
    places.hosts = hosts;
    for (size_t r = 0; r < me; ++r) places.local_rank += hosts[r] == hosts[me] ? 1 : 0;
    plans[me] = choose_devices(wish, sights[me], places, group);
  });
  for (const DevicePlan& plan : plans) {
    EXPECT_EQ(plan.text(), plans.front().text());
    EXPECT_EQ(plan.warnings, plans.front().warnings);
  }
  return plans;
}

std::string refusal(const DeviceWish& wish, const std::vector<std::string>& hosts,
                    const std::vector<GpuSight>& sights) {
  try {
    choose(wish, hosts, sights);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kConfig);
    return error.what();
  }
  return "not refused";
}

std::vector<int> indices(const std::vector<DevicePlan>& plans) {
  std::vector<int> all;
  for (const DevicePlan& plan : plans) {
    EXPECT_TRUE(plan.mine.is_cuda());
    all.push_back(plan.mine.index);
  }
  return all;
}

TEST(DeviceChoice, RankOfAHostTakesItsGpu) {
  // Ranks of two hosts take turns; a host may have more GPUs than ranks.
  const GpuSight a = sees({"a0", "a1", "a2"}), b = sees({"b0", "b1"});
  const auto plans = choose(kAuto, {"a", "b", "a", "b"}, {a, b, a, b});
  EXPECT_THAT(indices(plans), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(plans[0].text(), "cuda, auto: every rank has a GPU; 4 NVIDIA H200");
  EXPECT_THAT(plans[0].of_rank, ElementsAre("NVIDIA H200 GPU-a0", "NVIDIA H200 GPU-b0",
                                            "NVIDIA H200 GPU-a1", "NVIDIA H200 GPU-b1"));
  EXPECT_THAT(plans[0].warnings, IsEmpty());
  EXPECT_EQ(choose(kCuda, {"a"}, {a})[0].text(), "cuda, as device says; 1 NVIDIA H200");
}

TEST(DeviceChoice, OneVisibleGpuIsTakenAndOthersHiddenAreNamed) {
  const auto plans = choose(kAuto, {"a", "a"}, {sees({"a0"}), sees({"a1"})});
  EXPECT_THAT(indices(plans), ElementsAre(0, 0));
  EXPECT_THAT(plans[0].warnings,
              ElementsAre(HasSubstr("ranks 0, 1 of a see one GPU of 2: GPUs that are hidden")));
  const auto one = choose(kAuto, {"a", "a"}, {sees({"a0", "a1"}), sees({"a1"})});
  EXPECT_THAT(one[0].warnings, ElementsAre(HasSubstr("rank 1 of a sees one GPU of 2")));
  // Alone on a host there is nobody to hide from.
  EXPECT_THAT(choose(kAuto, {"a", "b"}, {sees({"x"}), sees({"y"})})[0].warnings, IsEmpty());
}

TEST(DeviceChoice, ASharedGpuIsRefusedByName) {
  for (const DeviceWish& wish : {kAuto, kCuda}) {
    EXPECT_THAT(refusal(wish, {"a", "a", "a"}, {sees({"g"}), sees({"g"}), sees({"g"})}),
                HasSubstr("ranks 0, 1, 2 of a would compute on one GPU, NVIDIA H200 GPU-g"));
    // By what it is, not by its number.
    EXPECT_THAT(refusal(wish, {"a", "a"}, {sees({"p", "q"}), sees({"q", "p"})}),
                HasSubstr("NVIDIA H200 GPU-p"));
  }
  // GPUs of different hosts may have one name.
  EXPECT_TRUE(choose(kAuto, {"a", "b"}, {sees({"g"}), sees({"g"})})[1].mine.is_cuda());
}

TEST(DeviceChoice, MoreRanksThanGpusAreRefusedWithTheNumbers) {
  const GpuSight two = sees({"0", "1"});
  for (const DeviceWish& wish : {kAuto, kCuda}) {
    EXPECT_THAT(refusal(wish, {"a", "a", "a"}, {two, two, two}),
                HasSubstr("a has 3 ranks, of which rank 2 sees 2 GPUs"));
  }
}

TEST(DeviceChoice, WithoutAGpuAutoIsTheProcessorAndCudaIsRefused) {
  const auto plans = choose(kAuto, {"a", "a"}, {sees({}), sees({})});
  EXPECT_TRUE(plans[1].mine.is_cpu());
  EXPECT_EQ(plans[1].text(), "cpu, auto: no driver");
  EXPECT_EQ(refusal(kCuda, {"a"}, {sees({})}), "device is cuda, but no driver; set device: cpu");
  GpuSight old = sees({"o"});
  old.gpus[0] = gpu("o", 7);
  EXPECT_THAT(choose(kAuto, {"a"}, {old})[0].text(),
              HasSubstr("compute capability 7.0, and the kernels need 8.0"));
  EXPECT_THAT(refusal(kAuto, {"a", "b"}, {sees({"0"}), sees({})}),
              HasSubstr("rank 1 on b has no GPU that it can use (no driver)"));
}

TEST(DeviceChoice, ExpertsOverRanksRunOnGpusButNotInAnyLayout) {
  for (const ModelType type : {ModelType::kKappaMoe, ModelType::kMoepMsit}) {
    Config config;
    config.model.type = type;
    config.parallel.model = {2};
    EXPECT_TRUE(runs_on_gpu(config));
    config.train.deterministic = Determinism::kLayout;
    EXPECT_FALSE(runs_on_gpu(config));
  }
}

TEST(DeviceChoice, WhatDoesNotRunOnGpusStaysOnTheProcessor) {
  const GpuSight two = sees({"0", "1"});
  const DeviceWish unable{DeviceChoice::kAuto, false};
  EXPECT_THAT(choose(unable, {"a", "a", "a"}, {two, two, two})[0].text(),
              HasSubstr("cpu, auto: train.deterministic: layout does not run on GPUs yet"));
  EXPECT_THAT(refusal({DeviceChoice::kCuda, false}, {"a"}, {two}),
              HasSubstr("does not run on GPUs yet"));
  // Only to run a model nothing hinders, however it was trained.
  Config config;
  config.model.type = ModelType::kMoepMsit;
  config.train.deterministic = Determinism::kLayout;
  EXPECT_FALSE(device_wish(config).able);
  const auto ran = choose(inference_wish(config), {"a", "a"}, {two, two});
  EXPECT_THAT(indices(ran), ElementsAre(0, 1));
  config.device = DeviceChoice::kCuda;
  DeviceWish there = inference_wish(config);
  there.instead = "give --device cpu";
  EXPECT_EQ(refusal(there, {"a"}, {sees({})}), "device is cuda, but no driver; give --device cpu");
  const DevicePlan asked = choose({DeviceChoice::kCpu, true}, {"a"}, {two})[0];
  EXPECT_EQ(asked.text(), "cpu, as device says");
  EXPECT_TRUE(asked.mine.is_cpu());
}

}  // namespace
}  // namespace anabranch
