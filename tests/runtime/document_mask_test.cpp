// data.document_mask from the configuration to the losses of a run.
#include <gtest/gtest.h>

#include "data/loader.h"
#include "data/validation.h"
#include "runtime/models/registry.h"
#include "runtime/run_data.h"
#include "runtime/trainer.h"
#include "runtime/training_state.h"
#include "tests/data/folder.h"
#include "tests/runtime/training.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

using test::run_training;
using test::TrainingFolder;

constexpr int32_t kDocumentBegin = 257;  // of the training folder's tokenizer

Config masked(const TrainingFolder& folder, const std::string& run, int64_t steps, bool mask) {
  Config config = folder.config(run, steps);
  config.data.document_mask = mask;
  return config;
}

// A batch whose documents are read off the tokens themselves.
MicroBatch by_hand(const Batch& batch, bool mask) {
  MicroBatch step{batch.inputs, batch.targets, 0};
  if (!mask) return step;
  step.document_starts = Tensor(batch.inputs.shape(), DType::kI32);
  const int64_t T = batch.inputs.dim(1);
  for (int64_t i = 0, start = 0; i < batch.inputs.count(); ++i) {
    if (i % T == 0 || batch.inputs.data<int32_t>()[i] == kDocumentBegin) start = i % T;
    step.document_starts.data<int32_t>()[i] = static_cast<int32_t>(start);
  }
  return step;
}

// A run's data, without the key, and its model at its first weights.
struct FirstWeights {
  explicit FirstWeights(Config of) : config(std::move(of)) { config.data.document_mask = false; }

  Config config;
  Dataset dataset = Dataset::open(config.data.path);
  std::unique_ptr<Model> model = make_model(config, dataset.tokenizer().vocab_size);
  TrainingState state{*model, config, {}, nullptr};
};

// The loss of a run's first step.
double first_loss(const Config& config, bool mask) {
  const FirstWeights first(config);
  Loader loader(first.dataset, loader_options(first.config, first.dataset));
  const MicroBatch step = by_hand(loader.next(), mask);
  Tape tape;
  const Var loss = first.model->loss(tape, step, {static_cast<uint64_t>(config.run.seed), 0},
                                     1.0 / static_cast<double>(config.train.batch_tokens));
  return *loss.value().data<double>();
}

TEST(DocumentMask, TheKeyDoesWhatItSays) {
  const TrainingFolder folder;
  for (const Packing packing : {Packing::kWindows, Packing::kBestFit}) {
    std::vector<double> losses;
    for (const bool mask : {false, true}) {
      Config config = masked(folder, join("run", mask, word_of(packing)), 1, mask);
      config.train.precision = Precision::kFp64;
      config.data.packing = packing;
      losses.push_back(run_training(config).losses().front());
      const double want = first_loss(config, mask);
      EXPECT_NEAR(losses.back(), want, test::kModelF64.relative * want) << word_of(packing);
    }
    EXPECT_GT(std::abs(losses[0] - losses[1]), test::kLayouts.relative * losses[0]);
  }
}

TEST(DocumentMask, LossesDoNotDependOnRanksMicroBatchesOrRecomputing) {
  const TrainingFolder folder;
  std::vector<double> one;
  const std::vector<double> unmasked = run_training(masked(folder, "unmasked", 20, false)).losses();
  for (const auto& [ranks, micro_batch] : {std::pair{1, 1}, {2, 1}, {1, 4}, {2, 3}}) {
    Config config = masked(folder, join("run-", ranks, "-", micro_batch), 20, true);
    config.train.micro_batch = micro_batch;
    config.model.recompute = micro_batch == 3;
    const std::vector<double> losses = run_training(config, {.ranks = ranks}).losses();
    if (one.empty()) one = losses;
    ASSERT_EQ(losses.size(), one.size());
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], one[i], test::kLayouts.relative * one[i]) << ranks << " ranks " << i;
      EXPECT_NE(losses[i], unmasked[i]) << i;
    }
  }
}

// The mean loss of the validation split at the first weights.
double validation_loss(const Config& config, bool mask) {
  const FirstWeights first(config);
  const Dataset& dataset = first.dataset;
  const Validation split(dataset.sources().front(), dataset.tokenizer().vocab_size,
                         {.T = config.model.context, .micro_batch = 1});
  double sum = 0;
  for (int64_t i = 0; i < split.batches(); ++i) {
    for (const double loss : test::values(first.model->token_losses(by_hand(split.at(i), mask)))) {
      sum += loss;
    }
  }
  return sum / static_cast<double>(split.target_tokens());
}

TEST(DocumentMask, ValidationHeedsIt) {
  const TrainingFolder folder;
  std::vector<double> losses;
  for (const bool mask : {false, true}) {
    Config config = masked(folder, join("run", mask), 1, mask);
    config.train.precision = Precision::kFp64;
    config.optim.lr = 0;  // the same weights
    config.optim.weight_decay = 0;
    losses.push_back(run_training(config).evals.back().loss);
    const double want = validation_loss(config, mask);
    EXPECT_NEAR(losses.back(), want, test::kModelF64.relative * want) << mask;
  }
  EXPECT_GT(std::abs(losses[0] - losses[1]), test::kLayouts.relative * losses[0]);
}

// A model that attends to all before.
class Plain final : public Model {
 public:
  void visit(const std::function<void(Param&)>& /*f*/) override {}

  Var loss(Tape& /*tape*/, const MicroBatch& /*batch*/, const StepKey& /*key*/,
           double /*scale*/) override {
    return Tensor();
  }

  Tensor token_losses(const MicroBatch& /*batch*/, Routing /*routing*/) override { return {}; }

  Tensor logits(const Tensor& /*ids*/) override { return {}; }

  Tensor decode_hidden(const Tensor& /*ids*/, std::span<const int64_t> /*new_tokens*/,
                       DecodeState& /*state*/) override {
    return {};
  }

  [[nodiscard]] DecodeState decode_state(int64_t /*batch*/, int64_t /*tokens*/) const override {
    return {};
  }

  [[nodiscard]] const Head& head() const override { return head_; }

  [[nodiscard]] Products products(int64_t /*sequences*/) const override { return {}; }

  [[nodiscard]] ModelCost cost() const override { return {}; }

  [[nodiscard]] int64_t context() const override { return 0; }

  [[nodiscard]] int64_t vocabulary() const override { return 0; }

 private:
  Param table_;
  Head head_{table_};
};

TEST(DocumentMask, AModelThatCannotIsRefused) {
  Config config;
  const Plain model;
  EXPECT_NO_THROW(check_data_fits(config, model));
  config.data.document_mask = true;
  test::expect_error(Fault::kConfig, {"data.document_mask is true", "gpt2 model cannot keep"},
                     [&] { check_data_fits(config, model); });
}

}  // namespace
}  // namespace anabranch
