// Every family out and in again: the same weights bit for bit, the same logits, and a run that goes
// on from them.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/read_file.h"
#include "runtime/interchange/export.h"
#include "runtime/interchange/import.h"
#include "runtime/interchange/safetensors.h"
#include "runtime/loaded_model.h"
#include "runtime/training_state.h"
#include "tests/runtime/small_families.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Family {
  const char* name;
  void (*set)(Config& config);
};

const Family kFamilies[] = {
    {"gpt2", [](Config& c) { c.model.gpt2.gelu = GeluForm::kErf; }},
    {"gpt2_fp64", [](Config& c) { c.train.precision = Precision::kFp64; }},
    {"gpt2_bf16", [](Config& c) { c.train.precision = Precision::kBf16; }},
    {"cmollm", test::streams<GateVariant::kAdaptive>},
    {"cmollm_pipeline",
     [](Config& c) {
       c.model.type = ModelType::kCmollm;
       c.model.cmollm.mode = StreamMode::kPipeline;
     }},
    {"parascale", test::copies},
    {"altup", [](Config& c) { c.model.type = ModelType::kAltup; }},
    {"kappa_moe",
     [](Config& c) {
       test::token_choice(c);
       c.optim.weight_decay = 0;
     }},
    {"moep_msit", test::two_experts},
};

// The weights and buffers of a run's newest checkpoint, as bytes by name.
std::map<std::string, std::string> weights_in(const fs::path& run) {
  auto tensors = test::checkpoint_tensors(run, test::saved_steps(run).front());
  std::erase_if(tensors, [](const auto& t) { return t.first.find('/') != std::string::npos; });
  return tensors;
}

// The names of those that two runs do not have alike.
std::vector<std::string> differing(const fs::path& a, const fs::path& b) {
  const auto ours = weights_in(a), theirs = weights_in(b);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : ours) {
    const auto found = theirs.find(name);
    if (found == theirs.end() || found->second != bytes) names.push_back(name);
  }
  for (const auto& [name, bytes] : theirs) {
    if (!ours.contains(name)) names.push_back(name);
  }
  return names;
}

std::vector<double> logits_of(const fs::path& run) {
  LoadedModel loaded = find_model(run, std::nullopt);
  load_weights(loaded, nullptr);
  Tensor ids({2, 7}, DType::kI32);
  for (int32_t i = 0; i < 14; ++i) ids.data<int32_t>()[i] = i * 17 % 258;
  return test::values(loaded.model->logits(ids));
}

class RoundTrip : public testing::TestWithParam<Family> {
 protected:
  RoundTrip() : config_(folder_.config("run", 4)) {
    GetParam().set(config_);
    fill_derived(config_);
    test::run_training(config_);
    // As the program leaves them in a run directory.
    std::ofstream(run() / "config.yaml") << dump_config(config_);
    fs::copy_file(folder_ / "data" / "tokenizer.json", run() / "tokenizer.json");
  }

  [[nodiscard]] fs::path run() const { return config_.run.dir; }

  void send(ExportFormat format) const {
    export_run({.path = run(), .out = folder_ / "out", .format = format});
  }

  void receive() const { import_run({folder_ / "out", folder_ / "in", {}}); }

  const test::TrainingFolder folder_{true};
  Config config_;
};

TEST_P(RoundTrip, GenericIsTheSameBitForBit) {
  send(ExportFormat::kGeneric);
  receive();
  EXPECT_THAT(differing(folder_ / "in", run()), IsEmpty());
  EXPECT_EQ(logits_of(folder_ / "in"), logits_of(run()));
  const Config config = load_config((folder_ / "in" / "config.yaml").string());
  EXPECT_EQ(config.model, config_.model);
  EXPECT_EQ(config.run.dir, (folder_ / "in").string());
  EXPECT_EQ(config.run.name, "in");
  EXPECT_EQ(read_file((folder_ / "in" / "tokenizer.json").string()),
            read_file((folder_ / "data" / "tokenizer.json").string()));
}

// On other ranks than wrote it: from these weights, at step 0, with moments of 0 and other data.
TEST_P(RoundTrip, TrainingGoesOnFromIt) {
  send(ExportFormat::kGeneric);
  receive();
  Config tuned = config_;
  tuned.run.dir = (folder_ / "in").string();
  tuned.train.steps = 3;
  tuned.data.seed = 7;
  const test::Training training = test::run_training(tuned, {.ranks = 2, .resume = Resume::kMust});
  EXPECT_THAT(training.events.front(), HasSubstr("imported weights, with a fresh optimizer"));
  ASSERT_EQ(training.losses().size(), 3U);
  Config scratch = tuned;
  scratch.run.dir = (folder_ / "scratch").string();
  EXPECT_LT(training.losses().front(), test::run_training(scratch).losses().front());
  EXPECT_TRUE(fs::exists(folder_ / "in" / "checkpoints" / "imported" / "manifest.json"));
  tuned.train.steps = 4;  // from a checkpoint of its own
  EXPECT_EQ(test::run_training(tuned, {.ranks = 2}).losses().size(), 1U);
}

TEST_P(RoundTrip, HuggingFacesFormIsOfGpt2Alone) {
  if (config_.model.type == ModelType::kGpt2) {
    send(ExportFormat::kHf);
    receive();
    if (config_.train.precision != Precision::kFp64) {  // read as float32
      EXPECT_THAT(differing(folder_ / "in", run()), IsEmpty());
    }
    return;
  }
  try {
    send(ExportFormat::kHf);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("model.type is "));
  }
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip, testing::ValuesIn(kFamilies),
                         [](const auto& family) { return std::string(family.param.name); });

class Export : public RoundTrip {};

TEST_P(Export, ReplacesAnEarlierExportOnly) {
  const fs::path out = folder_ / "out";
  export_run({.path = run(), .out = out, .batches = 2});
  EXPECT_TRUE(fs::exists(out / "batches.h5"));
  EXPECT_TRUE(fs::exists(out / "config.yaml"));
  export_run({.path = run(), .out = out});  // leaves nothing of the other format
  EXPECT_FALSE(fs::exists(out / "batches.h5"));
  EXPECT_FALSE(fs::exists(out / "config.yaml"));
  const auto refused = [&](const fs::path& folder) {
    try {
      export_run({.path = run(), .out = folder});
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUsage);
      return true;
    }
    return false;
  };
  std::ofstream(out / "notes.txt") << "mine\n";
  EXPECT_TRUE(refused(out));
  EXPECT_TRUE(refused(run()));
  EXPECT_TRUE(refused(folder_ / "data"));
  fs::create_directory(folder_ / "theirs");
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::ofstream(folder_ / "theirs" / name) << "{}";
  }
  EXPECT_TRUE(refused(folder_ / "theirs"));
  EXPECT_THROW(
      export_run({.path = run(), .out = folder_ / "b", .format = ExportFormat::kHf, .batches = 1}),
      Error);
}

TEST_P(Export, RoundsToBf16IfAsked) {
  for (const ExportFormat format : {ExportFormat::kHf, ExportFormat::kGeneric}) {
    const fs::path out = folder_ / join("bf16-", static_cast<int>(format));
    export_run({.path = run(), .out = out, .format = format, .bf16 = true});
    const SafetensorsReader reader((out / "model.safetensors").string());
    for (const SafetensorsEntry& e : reader.entries()) EXPECT_EQ(e.type, "BF16");
    import_run({out, folder_ / join("in-", static_cast<int>(format)), {}});
    const std::vector<double> got = logits_of(folder_ / join("in-", static_cast<int>(format)));
    const std::vector<double> want = logits_of(run());
    EXPECT_NE(got, want);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], test::op_tolerance(DType::kBF16).absolute);
    }
  }
}

TEST_P(Export, LeavesNothingHalfWritten) {
  fs::rename(folder_ / "data", folder_ / "elsewhere");
  EXPECT_THROW(export_run({.path = run(), .out = folder_ / "out", .batches = 1}), Error);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_FALSE(fs::exists(folder_ / ".out.staged"));
}

// The names that are told are those of the file.
TEST_P(Export, NamesAreWhatIsWritten) {
  const ExportOptions options{.path = run(), .out = folder_ / "out"};
  export_run(options);
  const SafetensorsReader reader((folder_ / "out" / "model.safetensors").string());
  const std::vector<ExportName> names = export_names(options);
  EXPECT_EQ(names.size(), reader.entries().size());
  for (const ExportName& n : names) {
    const SafetensorsEntry* e = reader.find(n.name);
    ASSERT_NE(e, nullptr) << n.name;
    EXPECT_EQ(e->shape, n.shape) << n.name;
  }
}

// Step 0 of a run that began by itself is what its seed says; of an imported one, what it imported.
TEST_P(Export, StepZeroIsWhereTheRunBegan) {
  send(ExportFormat::kGeneric);
  receive();
  export_run({.path = folder_ / "in", .out = folder_ / "again", .step = 0});
  export_run({.path = run(), .out = folder_ / "first", .step = 0});
  import_run({folder_ / "again", folder_ / "in2", {}});
  import_run({folder_ / "first", folder_ / "in3", {}});
  EXPECT_THAT(differing(folder_ / "in2", run()), IsEmpty());
  EXPECT_THAT(differing(folder_ / "in3", run()), Not(IsEmpty()));
}

// Moments that a damaged checkpoint left behind do not reach the run that begins anew.
TEST_P(Export, ADamagedCheckpointLeavesNothingInTheOptimizer) {
  send(ExportFormat::kGeneric);
  receive();
  Config tuned = config_;
  tuned.run.dir = (folder_ / "in").string();
  tuned.train.steps = 2;
  const std::vector<double> want = test::run_training(tuned).losses();
  const fs::path newest = test::checkpoints_of(folder_ / "in").at(2);
  const std::string tensors = (newest / "rank-0000.h5").string();
  std::string content = read_file(tensors);
  content[content.size() - 100] ^= 1;  // in the last tensor: the others are read before
  std::ofstream(tensors, std::ios::binary) << content;
  EXPECT_EQ(test::run_training(tuned).losses(), want);
}

INSTANTIATE_TEST_SUITE_P(Gpt2, Export, testing::Values(kFamilies[0]),
                         [](const auto& family) { return std::string(family.param.name); });

}  // namespace
}  // namespace anabranch
