// Whole training runs of several ranks with a simulated GPU each, over NCCL, against the same on
// CPUs.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "runtime/bench/random_step.h"
#include "runtime/config/validate.h"
#include "tests/cuda_sim/sim.h"
#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/runtime/small_families.h"
#include "tests/runtime/training.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using test::expert_choice;
using test::select;
using test::streams;
using test::token_choice;

constexpr Device kGpu{Device::Kind::kCuda, 0};

// Their experts over so many ranks.
template <void (*kFamily)(Config&), int64_t kRanks>
void over_ranks(Config& c) {
  kFamily(c);
  c.parallel.model = {kRanks};
}

// Its pools over so many ranks.
template <int kRanks, void (*kSet)(Config&)>
void pooled(Config& c) {
  kSet(c);
  int64_t& pool = c.model.type == ModelType::kKappaMoe ? c.model.kappa.pool_sequences
                                                       : c.model.moep.pool_sequences;
  c.train.micro_batch = 2;
  pool = kRanks * c.train.micro_batch;
}

struct Job {
  const char* name;
  void (*set)(Config& config);
  int ranks;
  int64_t dispatches = 0;  // of a micro-batch, whose counts the host reads
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

const Job kJobs[] = {
    {"gpt2", [](Config&) {}, 2},
    {"gpt2_3", [](Config&) {}, 3},
    {"gpt2_zero", [](Config& c) { c.parallel.zero = 1; }, 2},
    {"gpt2_zero_muon",
     [](Config& c) {
       c.parallel.zero = 1;
       c.optim.matrix = MatrixOptimizer::kMuon;
     },
     2},
    {"gpt2_wire", [](Config& c) { c.train.grad_wire = GradWire::kBf16; }, 2},
    {"cmollm", streams<GateVariant::kSimple>, 2},
    {"cmollm_gather",
     [](Config& c) {
       streams<GateVariant::kSimple>(c);
       c.parallel.model = {2};
       c.parallel.stream_layout = StreamLayoutChoice::kGather;
     },
     2},
    {"cmollm_slice",
     [](Config& c) {
       streams<GateVariant::kLinear>(c);
       c.parallel.model = {2};
       c.parallel.stream_layout = StreamLayoutChoice::kSlice;
     },
     2},
    {"parascale",
     [](Config& c) {
       c.model.type = ModelType::kParascale;
       c.model.parascale.streams = 2;
     },
     2},
    {"altup", [](Config& c) { c.model.type = ModelType::kAltup; }, 2},
    {"kappa", token_choice, 2},
    {"kappa_pool", pooled<2, token_choice>, 2},
    {"kappa_capacity_pool",
     [](Config& c) {
       pooled<3, token_choice>(c);
       c.model.kappa.capacity_train = 1.25;
       c.model.recompute = true;
     },
     3},
    {"moep_pool", pooled<2, expert_choice>, 2},
    {"moep_pool_3", pooled<3, expert_choice>, 3},
    {"moep_token_choice_pool", pooled<2, select<Selection::kTokenChoice>>, 2},
    {"moep_threshold_pool", pooled<2, select<Selection::kThreshold>>, 2},
    {"moep_predictor_pool", pooled<3, select<Selection::kPredictor>>, 3},
    {"kappa_experts", over_ranks<token_choice, 2>, 2, 1},
    {"kappa_experts_3", over_ranks<token_choice, 3>, 3, 1},
    // Both at once: two pools, of two ranks each.
    {"kappa_experts_pool",
     [](Config& c) {
       over_ranks<pooled<2, token_choice>, 2>(c);
       c.model.kappa.capacity_train = 1.25;
       c.train.batch_tokens = 256;
     },
     4, 1},
    {"moep_experts_pool",
     [](Config& c) {
       over_ranks<pooled<2, expert_choice>, 2>(c);
       c.train.batch_tokens = 256;
     },
     4, 2},
    {"kappa_experts_zero",
     [](Config& c) {
       over_ranks<token_choice, 2>(c);
       c.parallel.zero = 1;
     },
     4, 1},
    {"kappa_experts_capacity",
     [](Config& c) {
       over_ranks<token_choice, 2>(c);
       c.model.kappa.capacity_train = 1.25;
       c.model.recompute = true;
     },
     2, 2},  // with the forward that is done again
    {"moep_experts", over_ranks<expert_choice, 2>, 2, 2},
    {"moep_experts_3", over_ranks<expert_choice, 3>, 3, 2},
    {"moep_experts_sequence", over_ranks<select<Selection::kEcSeq>, 2>, 2, 2},
    {"moep_experts_token_choice", over_ranks<select<Selection::kTokenChoice>, 2>, 2, 2},
    {"moep_experts_threshold", over_ranks<select<Selection::kThreshold>, 2>, 2, 2},
    {"moep_experts_predictor", over_ranks<select<Selection::kPredictor>, 2>, 2, 2},
    // Fewer than a row for an expert: some have none.
    {"moep_experts_few_rows",
     [](Config& c) {
       over_ranks<select<Selection::kTokenChoice>, 2>(c);
       c.model.moep.windows = {1, 2, 3, 4, 2, 3, 4};
       c.model.moep.capacity = 1;
       c.model.context = 4;
       c.train.batch_tokens = 48;
     },
     2, 2},
    // Gates travel to the experts, which sort by them.
    {"moep_experts_affinity",
     [](Config& c) {
       over_ranks<expert_choice, 2>(c);
       c.train.micro_batch = c.model.moep.pool_sequences = 2;
       c.model.moep.order = SlotOrder::kAffinity;
       c.model.moep.window = c.model.moep.rope_position = SlotPosition::kCompact;
     },
     2, 2},
};

class SimJobs : public testing::TestWithParam<Job> {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  test::TrainingFolder folder_;
};

// Over NCCL, each rank on a GPU of its own.
TEST_P(SimJobs, HaveTheLossesOfCpus) {
  Config config = folder_.config("cpu", 4);
  GetParam().set(config);
  fill_derived(config);
  const int ranks = GetParam().ranks;
  const std::vector<double> want = test::run_training(config, {.ranks = ranks}).losses();
  config.run.dir = (folder_ / "gpu").string();
  const std::vector<double> got =
      test::run_training(config, {.ranks = ranks, .device = kGpu}).losses();
  const bool rounds = config.train.grad_wire == GradWire::kBf16;
  const test::Tolerance tolerance = rounds ? test::kDevicesBf16 : test::kDevices;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance.relative * want[i]) << "step " << i + 1;
  }
}

// The host waits once a step, and once for the counts of every dispatch.
TEST_P(SimJobs, WaitOnceAStepAndADispatch) {
  Config config = folder_.config("cpu", 4);
  GetParam().set(config);
  fill_derived(config);
  test::run_on_gpus(GetParam().ranks, [&](Group& g, const test::TestDevice& on) {
    RankContext context;
    context.rank = g.rank();
    context.size = g.size();
    context.device = on.pool->device();
    context.pool = std::make_shared<Pool>(context.device);
    RandomStep step(config, 257, g, context);
    step.run();
    EXPECT_EQ(step.run().gpu_waits, 1 + GetParam().dispatches * step.plan().accumulation);
  });
}

INSTANTIATE_TEST_SUITE_P(All, SimJobs, testing::ValuesIn(kJobs),
                         [](const auto& job) { return std::string(job.param.name); });

}  // namespace
}  // namespace anabranch
