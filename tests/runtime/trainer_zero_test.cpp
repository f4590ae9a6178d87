// Runs whose optimizer state is spread over ranks (parallel.zero), and checkpoints between layouts.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using test::checkpoint_tensors;
using test::run_training;
using test::Training;
using test::TrainingFolder;
using test::TrainingOptions;

constexpr int64_t kSteps = 12;

using Change = std::function<void(Config&)>;

// A run's losses and norms, and the tensors it ends with.
struct Outcome {
  std::vector<double> losses, norms, evals;
  std::map<std::string, std::string> tensors;
};

Outcome outcome(const TrainingFolder& folder, const std::string& name, int ranks, int64_t zero,
                const Change& change) {
  Config config = folder.config(join(name, "-", ranks, "-", zero), kSteps);
  config.parallel.zero = zero;
  config.eval.every_steps = 5;
  change(config);
  const Training run = run_training(config, {.ranks = ranks});
  Outcome out{run.losses(), {}, {}, checkpoint_tensors(config.run.dir, kSteps)};
  for (const StepReport& report : run.steps.back()) out.norms.push_back(report.grad_norm);
  for (const EvalReport& report : run.evals) out.evals.push_back(report.loss);
  return out;
}

// Only who adds and who updates differs, so nothing does.
void expect_same(const TrainingFolder& folder, const std::string& name, int ranks,
                 const Change& change) {
  const Outcome plain = outcome(folder, name, ranks, 0, change);
  const Outcome zero = outcome(folder, name, ranks, 1, change);
  EXPECT_EQ(zero.losses, plain.losses) << name << ", " << ranks;
  EXPECT_EQ(zero.evals, plain.evals) << name << ", " << ranks;
  test::expect_close(zero.norms, plain.norms, name);
  EXPECT_EQ(zero.tensors.size(), plain.tensors.size());
  for (const auto& [tensor, bytes] : plain.tensors) {
    EXPECT_TRUE(zero.tensors.at(tensor) == bytes) << name << ", " << ranks << ": " << tensor;
  }
}

TEST(Zero, TrainsAsWithoutIt) {
  const TrainingFolder folder;
  for (const int ranks : {1, 2, 3, 4}) {
    expect_same(folder, "fp32", ranks, [](Config& c) { c.optim.clip = 0; });
    expect_same(folder, "bf16", ranks, [](Config& c) {
      c.optim.clip = 0;
      c.train.precision = Precision::kBf16;
    });
    expect_same(folder, "wire", ranks, [](Config& c) {
      c.optim.clip = 0;
      c.train.grad_wire = GradWire::kBf16;
      c.model.gpt2.dropout = 0.1;
    });
  }
}

TEST(Zero, MatricesTrainAsWithoutIt) {
  const TrainingFolder folder;
  for (const int ranks : {2, 3}) {
    for (const MatrixOptimizer matrix : {MatrixOptimizer::kMuon, MatrixOptimizer::kAurora}) {
      for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
        const std::string name = join(word_of(matrix), word_of(precision));
        expect_same(folder, name, ranks, [&](Config& c) {
          c.optim.clip = 0;
          c.optim.matrix = matrix;
          c.train.precision = precision;
        });
      }
    }
  }
}

// Updates are counted alike by ranks that own none of the kappa parameters, which start late.
TEST(Zero, FrozenParametersStartTogether) {
  const TrainingFolder folder;
  expect_same(folder, "kappa", 3, [](Config& c) {
    c.optim.clip = 0;
    c.optim.weight_decay = 0;
    c.optim.matrix = MatrixOptimizer::kAurora;
    c.optim.kappa_lr = 0.05;
    c.optim.kappa_freeze = 0.3;
    c.model.type = ModelType::kKappaMoe;
    c.model.kappa.experts = 4;
    c.model.kappa.moe_first = 1;
    fill_derived(c);
  });
}

// The norm adds its squares in another order.
TEST(Zero, ClipsByTheNormOfAll) {
  const TrainingFolder folder;
  const auto clipped = [](Config& c) { c.optim.clip = 0.1; };
  const Outcome plain = outcome(folder, "clip", 3, 0, clipped);
  const Outcome zero = outcome(folder, "clip", 3, 1, clipped);
  for (const double norm : plain.norms) EXPECT_GT(norm, 0.1);
  test::expect_close(zero.losses, plain.losses, "loss");
  test::expect_close(zero.norms, plain.norms, "norm");
}

TrainingOptions stop_after(int64_t step, int ranks) {
  TrainingOptions options;
  options.ranks = ranks;
  options.after_step = [=](int rank, int64_t at, StopRequest& stop) {
    if (rank == 0 && at == step) stop.raise(StopKind::kRequeue);
  };
  return options;
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

TEST(Zero, GoesOnOnOtherLayouts) {
  const TrainingFolder folder;
  for (const MatrixOptimizer matrix : {MatrixOptimizer::kAdamw, MatrixOptimizer::kMuon}) {
    const auto named = [&](const std::string& name) {
      Config c = folder.config(join(name, word_of(matrix)), 2 * kSteps);
      c.optim.matrix = matrix;
      return c;
    };
    Config parts = named("parts");
    std::vector<double> losses;
    parts.parallel.zero = 1;
    append(losses, run_training(parts, stop_after(5, 2)).losses());
    parts.parallel.zero = 0;
    append(losses, run_training(parts, stop_after(11, 3)).losses());
    parts.parallel.zero = 1;
    append(losses, run_training(parts, stop_after(16, 4)).losses());
    append(losses, run_training(parts).losses());
    test::expect_close(losses, run_training(named("whole")).losses(), "layouts");
  }
}

TEST(Zero, ThreeResumesAreBitExact) {
  const TrainingFolder folder;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const auto named = [&](const std::string& name) {
      Config c = folder.config(join(name, word_of(precision)), 2 * kSteps);
      c.parallel.zero = 1;
      c.train.precision = precision;
      c.model.gpt2.dropout = 0.1;
      return c;
    };
    const Config whole = named("whole"), parts = named("parts");
    const std::vector<double> once = run_training(whole, {.ranks = 3}).losses();
    std::vector<double> losses;
    for (const int64_t stop : {int64_t{3}, int64_t{10}, int64_t{17}}) {
      append(losses, run_training(parts, stop_after(stop, 3)).losses());
    }
    append(losses, run_training(parts, {.ranks = 3}).losses());
    EXPECT_EQ(losses, once);
    EXPECT_EQ(test::checkpoint_state(parts.run.dir, 2 * kSteps),
              test::checkpoint_state(whole.run.dir, 2 * kSteps));
  }
}

}  // namespace
}  // namespace anabranch
