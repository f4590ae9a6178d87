#include "runtime/config/budget.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace anabranch {
namespace {

constexpr double kBatch = 1 << 19, kBatchExponent = 0.383;
constexpr int64_t kReferenceDepth = 12;

int64_t whole(double value) {
  return static_cast<int64_t>(std::min(std::floor(value), static_cast<double>(kMaxCount)));
}

double horizon(const ModelConfig& model, const TrainConfig& train) {
  return train.budget_ratio * scaling_parameters(model, train.budget_vocabulary, train.budget);
}

// The model of 12 layers of the same kind.
ModelConfig reference_of(ModelConfig model) {
  model.layers = model.width = model.heads = model.ffn_width = 0;
  model.kappa.depth = kReferenceDepth;
  fill_sizes(model);
  return model;
}

bool applies(const ModelConfig& model, const TrainConfig& train) {
  return train.budget != Budget::kNone && model.type == ModelType::kKappaMoe && model.layers > 0 &&
         model.width > 0;
}

// Then the budget gives the batch alone.
bool has_length(const TrainConfig& train) {
  return train.steps > 0 || train.tokens > 0 || train.epochs > 0;
}

}  // namespace

double scaling_parameters(const ModelConfig& model, int64_t vocabulary, Budget rule) {
  const KappaKeys& keys = model.kappa;
  const auto C = static_cast<double>(model.width), F = static_cast<double>(model.ffn_width),
             L = static_cast<double>(model.layers), E = static_cast<double>(keys.experts);
  const std::vector<bool> mixture = mixture_layers(keys, model.layers);
  const auto mixtures = static_cast<double>(std::ranges::count(mixture, true));
  const double slopes = keys.kappa ? (keys.kappa_alpha ? 1 : 0) + (keys.kappa_b ? 1 : 0) : 0;
  const double gates = std::ceil(L / 2) * static_cast<double>(model.heads) *
                       static_cast<double>(std::min(kGateChannels, model.width));
  const double shared = L * 4 * C * C + (L - mixtures) * 3 * C * F + mixtures * E * C + gates +
                        static_cast<double>(vocabulary) * C;
  const double experts = mixtures * E * (3 * C * F + slopes * F);
  const bool all = rule == Budget::kAuthors && mixtures < L / 5;
  return shared + experts * (all ? 1 : std::sqrt(static_cast<double>(keys.top_k) / E));
}

RunSize size_run(const ModelConfig& model, const TrainConfig& train) {
  RunSize size;
  size.tokens = horizon(model, train);
  size.batch_tokens = train.batch_tokens;
  if (size.batch_tokens == 0) {
    const double longer = size.tokens / horizon(reference_of(model), train);
    const double batch = kBatch * std::pow(longer, kBatchExponent);
    size.batch_tokens = std::max<int64_t>(whole(std::exp2(std::round(std::log2(batch)))), 1);
  }
  size.steps = whole(size.tokens / static_cast<double>(size.batch_tokens));
  return size;
}

void fill_budget(const ModelConfig& model, TrainConfig& train) {
  if (!applies(model, train)) return;
  const RunSize size = size_run(model, train);
  train.batch_tokens = size.batch_tokens;
  if (!has_length(train)) train.steps = size.steps;
}

std::vector<std::string> check_budget(const ModelConfig& model, const TrainConfig& train) {
  if (train.budget == Budget::kNone) return {};
  if (model.type != ModelType::kKappaMoe) {
    return {join("train.budget ", word_of(train.budget), " is for model.type kappa_moe, and it is ",
                 word_of(model.type), ": set it to none")};
  }
  if (!applies(model, train) || has_length(train)) return {};
  const RunSize size = size_run(model, train);
  return {join("train.budget ", word_of(train.budget), " gives ", whole(size.tokens),
               " tokens, less than a step of train.batch_tokens ", size.batch_tokens,
               ": raise train.budget_ratio or give smaller steps")};
}

void check_budget_vocabulary(const TrainConfig& train, int64_t vocabulary) {
  if (train.budget == Budget::kNone || train.budget_vocabulary == vocabulary) return;
  throw config_error("train.budget_vocabulary is ", train.budget_vocabulary,
                     ", and the data's tokenizer has ", vocabulary,
                     " entries: give that number, or set train.budget to none");
}

}  // namespace anabranch
