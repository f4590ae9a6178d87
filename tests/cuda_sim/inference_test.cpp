// Evaluation and sampling on simulated GPUs, against the same on the CPU.
#include "launch/inference.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "data/shard/dataset.h"
#include "data/validation.h"
#include "launch/cuda_part.h"
#include "parallel/comm/device_group.h"
#include "runtime/bench/generate_bench.h"
#include "runtime/config/validate.h"
#include "runtime/evaluator.h"
#include "runtime/generator.h"
#include "runtime/loaded_model.h"
#include "runtime/memory_need.h"
#include "tests/cuda_sim/sim.h"
#include "tests/runtime/small_families.h"
#include "tests/runtime/training.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using test::pipeline;
using test::select;
using test::streams;
using test::token_choice;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr Device kGpu{Device::Kind::kCuda, 0};
constexpr int64_t kStep = 2;  // of the checkpoints

struct Family {
  const char* name;
  void (*set)(Config& config);
};

std::ostream& operator<<(std::ostream& out, const Family& family) { return out << family.name; }

template <void (*kSet)(Config&)>
void masked(Config& c) {
  kSet(c);
  c.data.document_mask = true;
}

const Family kFamilies[] = {
    {"gpt2", [](Config& c) { c.model.gpt2.dropout = 0.1; }},
    {"gpt2_masked", [](Config& c) { c.data.document_mask = true; }},
    {"gpt2_fp64", [](Config& c) { c.train.precision = Precision::kFp64; }},
    {"gpt2_any_layout", [](Config& c) { c.train.deterministic = Determinism::kLayout; }},
    {"cmollm_adaptive", streams<GateVariant::kAdaptive>},
    {"cmollm_ema",
     [](Config& c) {
       streams<GateVariant::kContextAware>(c);
       c.model.cmollm.ctx = GateContext::kEma;
     }},
    {"cmollm_global",
     [](Config& c) {
       streams<GateVariant::kContextAware>(c);
       c.model.cmollm.ctx = GateContext::kGlobal;
     }},
    {"cmollm_post",
     [](Config& c) {
       streams<GateVariant::kSimple>(c);
       c.model.cmollm.mix = MixPoint::kPost;
     }},
    {"cmollm_pipeline", pipeline<GateVariant::kAdaptive>},
    {"cmollm_masked", masked<streams<GateVariant::kAdaptive>>},
    {"cmollm_pipeline_masked", masked<pipeline<GateVariant::kContextAware>>},
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
       c.model.kappa.capacity_eval = 1;
     }},
    {"moep", select<Selection::kEcBatch>},
    {"moep_token_choice", select<Selection::kTokenChoice>},
    {"moep_threshold", select<Selection::kThreshold>},
    {"moep_predictor", select<Selection::kPredictor>},
};

// Of these names.
std::vector<Family> some(const std::vector<std::string>& names) {
  std::vector<Family> all(std::begin(kFamilies), std::end(kFamilies));
  std::erase_if(all,
                [&](const Family& f) { return std::ranges::find(names, f.name) == names.end(); });
  return all;
}

std::string named(const testing::TestParamInfo<Family>& family) { return family.param.name; }

using Tokens = std::vector<std::vector<int32_t>>;

// Of several lengths, and longer in the end than the context, so that the caches start over.
const Tokens kPrompts = {{97, 98, 99, 100, 101}, {116}, {104, 101, 108}};
constexpr int64_t kTokens = 15;

SamplingOptions greedy() {
  SamplingOptions o;
  o.max_tokens = kTokens;
  o.temperature = 0;
  return o;
}

SamplingOptions sampled() {
  SamplingOptions o;
  o.max_tokens = kTokens;
  o.top_k = 200;
  o.top_p = 0.95;
  o.seed = 7;
  return o;
}

// Prompts read at once, and a token after each.
void expect_logits_near(Model& got, Model& want) {
  DecodeState there = got.decode_state(3, 8), here = want.decode_state(3, 8);
  const auto compare = [&](const Tensor& ids, const std::vector<int64_t>& counts) {
    test::expect_near(got.decode(ids, counts, there), test::values(want.decode(ids, counts, here)),
                      test::kModelF32, join("logits of ", ids.shape()));
  };
  compare(Tensor::of<int32_t>({3, 5}, {97, 98, 99, 100, 101, 116, 0, 0, 0, 0, 104, 101, 108, 0, 0}),
          {5, 1, 3});
  compare(Tensor::of<int32_t>({3, 1}, {102, 104, 112}), {1, 1, 1});
}

// The losses of a validation split, those of a model that looks ahead too, and waits of the host.
struct Measured {
  std::vector<EvalReport> reports;
  int64_t batches = 0, waits = 0;
};

Measured measure(LoadedModel& loaded, const std::shared_ptr<Pool>& pool, Group& group) {
  const Dataset dataset = Dataset::open(loaded.config.data.path);
  const Validation split(dataset.sources().front(), loaded.model->vocabulary(),
                         {.T = loaded.model->context(),
                          .micro_batch = 4,
                          .rank = group.rank(),
                          .ranks = group.size(),
                          .max_tokens = loaded.config.eval.max_tokens,
                          .with_document_starts = loaded.config.data.document_mask});
  const std::vector<int32_t> bytes(loaded.tokenizer.token_bytes().begin(),
                                   loaded.tokenizer.token_bytes().end());
  Measured measured;
  const int64_t before = pool->stream().waits();
  for (const Routing routing : {Routing::kCausal, Routing::kAsTrained}) {
    if (routing == Routing::kCausal && !loaded.model->has_causal_mode()) continue;
    const auto next = [&, i = int64_t{0}](MicroBatch& batch) mutable {
      if (i == split.batches()) return false;
      const Batch from = split.at(i++);
      batch = {from.inputs, from.targets, 0, from.document_starts};
      ++measured.batches;
      return true;
    };
    measured.reports.push_back(evaluate(*loaded.model, next, bytes, group, routing));
  }
  measured.waits = pool->stream().waits() - before;
  return measured;
}

void expect_near(const Measured& got, const Measured& want, const test::Tolerance& tolerance) {
  ASSERT_EQ(got.reports.size(), want.reports.size());
  for (size_t i = 0; i < got.reports.size(); ++i) {
    const EvalReport &g = got.reports[i], &w = want.reports[i];
    EXPECT_NEAR(g.loss, w.loss, tolerance.relative * w.loss) << "routing " << i;
    EXPECT_NEAR(g.bits_per_byte, w.bits_per_byte, tolerance.relative * w.bits_per_byte);
    EXPECT_EQ(g.tokens, w.tokens);
  }
}

class SimInference : public testing::TestWithParam<Family> {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  [[nodiscard]] Config config() const {
    Config config = folder_.config("run", kStep);
    GetParam().set(config);
    config.eval.max_tokens = 160;  // batches of 64, the last of which is not full
    fill_derived(config);
    return config;
  }

  // Trains two steps on `device` and leaves what a run does.
  [[nodiscard]] test::Training train(const Config& config, Device device = {}) const {
    test::Training training = test::run_training(config, {.device = device});
    std::filesystem::copy_file(folder_ / "data" / "tokenizer.json",
                               std::filesystem::path(config.run.dir) / kRunTokenizer);
    return training;
  }

  static LoadedModel load(const Config& config, const std::shared_ptr<Pool>& pool) {
    LoadedModel loaded = find_model(config.run.dir, kStep);
    load_weights(loaded, pool);
    return loaded;
  }

  test::TrainingFolder folder_{true};
  const std::shared_ptr<Pool> cpu_ = std::make_shared<Pool>(), gpu_ = std::make_shared<Pool>(kGpu);
  const std::unique_ptr<Group> alone_ = self_group();
};

TEST_P(SimInference, EvaluatesAsTheCpuAndWaitsOnceABatch) {
  const Config config = this->config();
  const test::Training training = train(config);
  LoadedModel here = load(config, cpu_), there = load(config, gpu_);
  const Measured want = measure(here, cpu_, *alone_), got = measure(there, gpu_, *alone_);
  expect_near(got, want, test::kDevices);
  EXPECT_GT(got.batches, 1);
  EXPECT_EQ(got.waits, got.batches);
  const double said = training.evals.front().loss;
  EXPECT_NEAR(want.reports.front().loss, said, test::kLayouts.relative * said);
}

TEST_P(SimInference, GeneratesTheTokensOfTheCpuAndWaitsOnceForEach) {
  const Config config = this->config();
  (void)train(config);
  LoadedModel here = load(config, cpu_), there = load(config, gpu_);
  if (!here.model->has_causal_mode()) {
    EXPECT_THROW((void)generate(*there.model, kPrompts, greedy()), Error);
    return;
  }
  expect_logits_near(*there.model, *here.model);
  for (const SamplingOptions& options : {greedy(), sampled()}) {
    const Tokens want = generate(*here.model, kPrompts, options);
    const int64_t before = gpu_->stream().waits();
    EXPECT_EQ(generate(*there.model, kPrompts, options), want)
        << "temperature " << options.temperature;
    EXPECT_EQ(gpu_->stream().waits() - before, kTokens);
  }
}

class SimInferenceBack : public SimInference {};

// A CPU's on a GPU is above.
TEST_P(SimInferenceBack, ACheckpointOfAGpuIsEvaluatedByTheCpu) {
  const Config config = this->config();
  const test::Training training = train(config, kGpu);
  LoadedModel here = load(config, cpu_), there = load(config, gpu_);
  const Measured on_cpu = measure(here, cpu_, *alone_), on_gpu = measure(there, gpu_, *alone_);
  expect_near(on_cpu, on_gpu, test::kDevices);
  const double said = training.evals.front().loss;
  EXPECT_NEAR(on_gpu.reports.front().loss, said, test::kDevices.relative * said);
}

INSTANTIATE_TEST_SUITE_P(All, SimInference, testing::ValuesIn(kFamilies), named);
INSTANTIATE_TEST_SUITE_P(Some, SimInferenceBack,
                         testing::ValuesIn(some({"gpt2", "cmollm_adaptive", "parascale", "altup",
                                                 "kappa", "moep_threshold"})),
                         named);

// The way of the verbs, on one rank.
class SimVerbs : public SimInference {
 protected:
  void TearDown() override {
    cuda_sim::options() = before_;
    SimInference::TearDown();
  }

  // What rank 0 says on the error stream; the device is left in `device_`.
  std::string said(const ModelWish& wish) {
    testing::internal::CaptureStderr();
    std::string text;
    try {
      RankProcess process(self_group());
      const LoadedModel loaded = load_on_device(wish, process);
      device_ = process.context().device;
      loaded.model->visit([&](Param& w) { EXPECT_EQ(w.value.device(), device_) << w.name; });
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kConfig);
      text = error.what();
    }
    return testing::internal::GetCapturedStderr() + text;
  }

  const cuda_sim::Options before_ = cuda_sim::options();
  Device device_;
};

TEST_P(SimVerbs, TakeTheDeviceThatTheRunWouldTake) {
  Config config = this->config();
  (void)train(config);
  const ModelWish as_the_run{config.run.dir, {}, {}};
  EXPECT_EQ(said(as_the_run), "device: cuda, auto: every rank has a GPU; 1 simulated GPU\n");
  EXPECT_EQ(device_, kGpu);
  EXPECT_EQ(said({config.run.dir, {}, DeviceChoice::kCpu}), "device: cpu, as device says\n");
  EXPECT_TRUE(device_.is_cpu());
  cuda_sim::options().device_bytes = 1000;
  EXPECT_THAT(said(as_the_run), HasSubstr("the model does not fit this machine: "));
  cuda_sim::options().devices = 0;
  EXPECT_THAT(said(as_the_run), StartsWith("device: cpu, auto: CUDA finds no GPU: "));
  EXPECT_TRUE(device_.is_cpu());
  setenv(kGpuDemanded, "yes", 1);
  EXPECT_THAT(said(as_the_run), StartsWith("ANABRANCH_DEVICE is cuda, but CUDA finds no GPU: "));
  EXPECT_THAT(said({config.run.dir, {}, DeviceChoice::kCpu}),
              StartsWith("ANABRANCH_DEVICE is cuda, and device is cpu"));
  unsetenv(kGpuDemanded);
  EXPECT_THAT(said({config.run.dir, {}, DeviceChoice::kCuda}),
              AllOf(StartsWith("device is cuda, but CUDA finds no GPU: "),
                    EndsWith("; give --device cpu")));
}

INSTANTIATE_TEST_SUITE_P(Some, SimVerbs, testing::ValuesIn(some({"gpt2_any_layout"})), named);

class SimInferenceInBf16 : public SimInference {};

// Tokens are not compared: of two that are nearly as likely, rounding decides.
TEST_P(SimInferenceInBf16, IsNearTheCpuAndKeepsNoMasters) {
  Config config = this->config();
  config.train.precision = Precision::kBf16;
  (void)train(config);
  LoadedModel here = load(config, cpu_), there = load(config, gpu_);
  EXPECT_EQ(static_cast<double>(gpu_->usage().live), weights_memory(*there.model, kGpu).total());
  EXPECT_LT(gpu_->usage().peak, cpu_->usage().live);
  const Measured want = measure(here, cpu_, *alone_), got = measure(there, gpu_, *alone_);
  expect_near(got, want, test::kDevicesBf16);
  for (const auto& tokens : generate(*there.model, kPrompts, sampled())) {
    EXPECT_EQ(std::ssize(tokens), kTokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Some, SimInferenceInBf16,
                         testing::ValuesIn(some({"gpt2", "kappa", "moep"})), named);

class SimInferenceOfRanks : public SimInference {};

// Each rank has all experts, so they need no ranks to lie on.
TEST_P(SimInferenceOfRanks, EvaluateAsOneCpu) {
  const Config config = this->config();
  (void)train(config);
  LoadedModel here = load(config, cpu_);
  const Measured want = measure(here, cpu_, *alone_);
  run_on_threads(2, [&](Group& threads) {
    const Device device{Device::Kind::kCuda, threads.rank()};
    const auto group = device_group(threads.split(0, threads.rank()), device);
    const auto pool = std::make_shared<Pool>(device);
    LoadedModel there = load(config, pool);
    const Measured got = measure(there, pool, *group);
    expect_near(got, want, test::kDevices);
    EXPECT_EQ(got.waits, got.batches);
  });
}

INSTANTIATE_TEST_SUITE_P(Some, SimInferenceOfRanks,
                         testing::ValuesIn(some({"gpt2", "kappa", "moep_threshold"})), named);

TEST(SimSampling, IsTimedOnAGpu) {
  const Config config = parse_config(
      "model: {type: kappa_moe, layers: 2, width: 16, heads: 2, context: 16, experts: 4, "
      "moe_first: 1}\n",
      "bench");
  const GenerateBenchOptions options{
      .vocabulary = 50, .batch = 2, .prompt_tokens = 5, .tokens = 4, .rounds = 2};
  const GenerateBench bench = bench_generate(config, options, std::make_shared<Pool>(kGpu));
  EXPECT_EQ(bench.decode_seconds.size(), 2U);
  EXPECT_EQ(bench.gpu_waits, options.tokens);
  EXPECT_EQ(cuda_sim::take_fault(), "");
}

}  // namespace
}  // namespace anabranch
