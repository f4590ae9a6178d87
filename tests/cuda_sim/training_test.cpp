// Whole training runs on simulated GPUs, against the same on the CPU.
#include "tests/runtime/training.h"

#include <cmath>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "core/cuda/blas.h"
#include "runtime/bench/ops_bench.h"
#include "runtime/bench/random_step.h"
#include "runtime/config/validate.h"
#include "runtime/planner/plan.h"
#include "tests/cuda_sim/sim.h"
#include "tests/runtime/small_families.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using test::expert_choice;
using test::select;
using test::streams;
using test::token_choice;

constexpr Device kGpu{Device::Kind::kCuda, 0};

struct Family {
  const char* name;
  void (*set)(Config& config);
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

const Family kFamilies[] = {
    {"gpt2", [](Config& c) { c.model.gpt2.dropout = 0.1; }},
    {"gpt2_recompute",
     [](Config& c) {
       c.model.recompute = true;
       c.data.document_mask = true;
       c.optim.clip = 0.1;
     }},
    {"gpt2_fp64", [](Config& c) { c.train.precision = Precision::kFp64; }},
    {"gpt2_muon", [](Config& c) { c.optim.matrix = MatrixOptimizer::kMuon; }},
    {"gpt2_aurora", [](Config& c) { c.optim.matrix = MatrixOptimizer::kAurora; }},
    {"cmollm_linear", streams<GateVariant::kLinear>},
    {"cmollm_simple", streams<GateVariant::kSimple>},
    {"cmollm_context_aware", streams<GateVariant::kContextAware>},
    {"cmollm_multi_head", streams<GateVariant::kMultiHead>},
    {"cmollm_adaptive", streams<GateVariant::kAdaptive>},
    {"cmollm_post",
     [](Config& c) {
       streams<GateVariant::kSimple>(c);
       c.model.cmollm.mix = MixPoint::kPost;
     }},
    {"cmollm_pipeline",
     [](Config& c) {
       streams<GateVariant::kLinear>(c);
       c.model.cmollm.mode = StreamMode::kPipeline;
       c.model.cmollm.streams = 2;
     }},
    {"cmollm_masked",
     [](Config& c) {
       streams<GateVariant::kContextAware>(c);
       c.data.document_mask = true;
     }},
    {"cmollm_pipeline_masked",
     [](Config& c) {
       streams<GateVariant::kContextAware>(c);
       c.data.document_mask = true;
       c.model.recompute = true;
       c.model.cmollm.mode = StreamMode::kPipeline;
       c.model.cmollm.streams = 2;
       c.model.cmollm.span = 1;
     }},
    {"parascale",
     [](Config& c) {
       c.model.type = ModelType::kParascale;
       c.model.parascale.streams = 2;
       c.model.parascale.prefix = 3;
     }},
    {"altup", [](Config& c) { c.model.type = ModelType::kAltup; }},
    {"kappa", token_choice},
    {"kappa_capacity",
     [](Config& c) {
       token_choice(c);
       c.model.kappa.capacity_train = 1.25;
     }},
    {"moep", expert_choice},
    {"moep_token_choice", select<Selection::kTokenChoice>},
    {"kappa_recompute",
     [](Config& c) {
       token_choice(c);
       c.model.recompute = true;
       c.data.document_mask = true;
       c.model.kappa.capacity_train = 1;
     }},
    {"moep_threshold", select<Selection::kThreshold>},
    {"moep_predictor", select<Selection::kPredictor>},
    {"moep_sequence_fp64",
     [](Config& c) {
       select<Selection::kEcSeq>(c);
       c.train.precision = Precision::kFp64;
     }},
    // As the released code, which lists rows by affinity and attends over a whole pool.
    {"moep_affinity",
     [](Config& c) {
       expert_choice(c);
       c.train.micro_batch = c.model.moep.pool_sequences = 4;
       c.model.moep.order = SlotOrder::kAffinity;
       c.model.moep.window = c.model.moep.rope_position = SlotPosition::kCompact;
       c.model.moep.segments = SegmentScope::kPool;
     }},
    {"moep_masked",
     [](Config& c) {
       expert_choice(c);
       c.train.micro_batch = 3;
       c.model.recompute = true;
       c.model.moep.causal_ratio = 0.5;
       c.model.moep.select = Selection::kTokenChoice;
       c.model.moep.window = SlotPosition::kCompact;
     }},
};

class SimTraining : public testing::TestWithParam<Family> {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  void expect_as_on_cpu(Config config, const test::Tolerance& tolerance) {
    GetParam().set(config);
    fill_derived(config);
    const std::vector<double> want = test::run_training(config).losses();
    config.run.dir = (folder_ / "gpu").string();
    const uint64_t before = cuda_sim::counters().kernels;
    const std::vector<double> got = test::run_training(config, {.device = kGpu}).losses();
    EXPECT_GT(cuda_sim::counters().kernels, before);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], tolerance.relative * std::abs(want[i])) << "step " << i + 1;
    }
  }

  test::TrainingFolder folder_{true};
};

TEST_P(SimTraining, HasTheLossesOfTheCpu) {
  expect_as_on_cpu(folder_.config("cpu", 4), test::kDevices);
}

class SimTrainingInBf16 : public SimTraining {};

TEST_P(SimTrainingInBf16, IsNearTheCpu) {
  Config config = folder_.config("cpu", 3);
  config.train.precision = Precision::kBf16;
  expect_as_on_cpu(config, test::kDevicesBf16);
}

// What is reported of a step is not looked at here: that would wait.
TEST_P(SimTraining, TheHostWaitsOnceAStep) {
  Config config = folder_.config("cpu", 4);
  GetParam().set(config);
  fill_derived(config);
  RankContext context;
  context.device = kGpu;
  context.pool = std::make_shared<Pool>(kGpu);
  const std::unique_ptr<Group> alone = self_group();
  RandomStep step(config, 257, *alone, context);
  step.run();
  EXPECT_EQ(step.run().gpu_waits, 1);
}

// From a GPU's checkpoint a CPU goes on, and a GPU from a CPU's; what is validated on the way has
// the CPU's figures.
TEST_P(SimTraining, GoesOnElsewhere) {
  Config config = folder_.config("cpu", 4);
  GetParam().set(config);
  config.eval.every_steps = 2;
  fill_derived(config);
  const test::Training want = test::run_training(config);
  for (const bool first_on_gpu : {true, false}) {
    config.run.dir = (folder_ / (first_on_gpu ? "from GPU" : "to GPU")).string();
    const Device first = first_on_gpu ? kGpu : Device{}, then = first_on_gpu ? Device{} : kGpu;
    const auto stop = [](int /*rank*/, int64_t step, StopRequest& request) {
      if (step == 2) request.raise(StopKind::kInterrupt);
    };
    (void)test::run_training(config, {.after_step = stop, .device = first});
    const test::Training got = test::run_training(config, {.device = then});
    ASSERT_EQ(got.steps.front().size(), 2U);
    EXPECT_NEAR(got.losses().back(), want.losses().back(),
                test::kDevices.relative * want.losses().back());
    ASSERT_FALSE(got.evals.empty());
    EXPECT_NEAR(got.evals.back().loss, want.evals.back().loss,
                test::kDevices.relative * want.evals.back().loss);
  }
}

// Ops of a step one by one, as they are timed on a GPU.
TEST_P(SimTraining, OpsRunAlone) {
  Config config = folder_.config("cpu", 4);
  GetParam().set(config);
  fill_derived(config);
  const auto pool = std::make_shared<Pool>(kGpu);
  const std::vector<OpTiming> all = bench_ops(config, 257, 1, pool);
  EXPECT_GT(all.size(), 20U);
  for (const OpTiming& op : all) EXPECT_GT(op.seconds, 0) << op.name;
}

TEST(SimMemory, IsAsPlanned) {
  for (const char* model :
       {"layers: 3", "layers: 3, recompute: true", "type: cmollm, layers: 3, streams: 4",
        "type: cmollm, layers: 1, streams: 16, mix: post", "type: altup, layers: 3",
        "type: kappa_moe, layers: 3, experts: 4, moe_first: 1"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      const Config config = parse_config(
          join("data: {path: none}\nmodel: {width: 64, heads: 2, context: 64, ", model,
               "}\ntrain: {steps: 1, batch_tokens: 512, micro_batch: 8, precision: ", precision,
               "}\n"),
          "memory");
      RankContext context;
      context.device = kGpu;
      context.pool = std::make_shared<Pool>(kGpu);
      const std::unique_ptr<Group> alone = self_group();
      RandomStep step(config, 1001, *alone, context);
      step.run();
      Layout layout;
      layout.on_gpu = true;
      const RankMemory planned =
          rank_memory(weight_bytes(config, 1001, layout), config, 1001, layout);
      // By itself: beside so small a model it would hide all else.
      EXPECT_EQ(planned.workspace, cuda::Blas::kWorkspaceBytes);
      const double used = static_cast<double>(context.pool->usage().peak) - planned.workspace;
      EXPECT_NEAR((planned.total() - planned.workspace) / used, 1, test::kPlannedMemory.relative)
          << model << precision;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimTraining, testing::ValuesIn(kFamilies),
                         [](const auto& family) { return std::string(family.param.name); });

// Those that do not set a precision themselves.
std::vector<Family> of_any_precision() {
  std::vector<Family> all(std::begin(kFamilies), std::end(kFamilies));
  std::erase_if(all, [](const Family& f) { return std::string(f.name).ends_with("fp64"); });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, SimTrainingInBf16, testing::ValuesIn(of_any_precision()),
                         [](const auto& family) { return std::string(family.param.name); });

}  // namespace
}  // namespace anabranch
