#include "runtime/config/kappa_recipe.h"

#include <algorithm>
#include <array>

namespace anabranch {
namespace {

struct Setting {
  int64_t depth, experts, moe_layers;
  bool sandwich;
};

// Mixtures begin at layer 2. 0: all from there, also in the 12 layers that the batch is measured
// against.
constexpr std::array<Setting, 8> kSettings{{{8, 64, 0, false},
                                            {10, 32, 0, false},
                                            {12, 32, 8, false},
                                            {14, 16, 10, false},
                                            {16, 16, 0, true},
                                            {20, 16, 0, true},
                                            {24, 16, 0, true},
                                            {28, 16, 0, true}}};

// Sequences that a GPU computes at a time, over which balance is measured.
constexpr int64_t kMicroBatch = 32;

void set_sizes(ModelConfig& model, const ModelConfig& wish) {
  KappaKeys& keys = model.kappa;
  keys.depth = wish.kappa.depth > 0 ? wish.kappa.depth : 12;
  model.context = 2048;
  keys.pool_sequences = kMicroBatch;
  for (const Setting& setting : kSettings) {
    if (setting.depth != keys.depth) continue;
    keys.experts = setting.experts;
    keys.moe_layers = setting.moe_layers;
    keys.sandwich = setting.sandwich;
  }
}

void set_optimizers(OptimConfig& o) {
  o.lr = o.embedding_lr = 0.3;
  o.head_lr = 0.004;
  o.residual_lr = 0.005;
  o.input_residual_lr = 0.5;
  o.input_residual_beta1 = 0.96;
  o.beta1 = 0.8;
  o.beta2 = 0.95;
  o.eps = 1e-10;
  o.weight_decay = o.clip = o.min_lr_ratio = 0;
  o.schedule = ScheduleForm::kLinear;
  o.kappa_lr = 0.12;
  o.kappa_lr_end = 0.06;
  o.kappa_freeze = 0.1;
  o.kappa_warmup_steps = 1000;
  o.matrix = MatrixOptimizer::kAurora;
  o.matrix_lr = 0.01;
  o.matrix_weight_decay = 0.05;
  o.scale_by_width = o.scale_by_batch = o.decay_by_depth = o.decay_to_zero = true;
}

void set_authors_own(Config& config, bool kappa) {
  KappaKeys& keys = config.model.kappa;
  keys.kappa_scale_alpha = 0.3;
  keys.kappa_scale_b = 2;
  keys.kappa_router_grad = 0.1;
  keys.balance = kappa ? 5e-4 : 1e-3;
  keys.balance_first = 2;
  keys.balance_steps = 500;
  keys.z_form = ZLossForm::kDemeaned;
  keys.z_input_grad = 0.1;
  keys.capacity_train = 1;
  keys.capacity_eval = 3;
  config.optim.kappa_scaled = true;
  config.optim.polar_steps = 5;
  config.optim.matrix_scale = MatrixScale::kRms;
  config.train.budget = Budget::kAuthors;
}

}  // namespace

bool is_recipe(std::string_view preset) {
  return preset == kPaperRecipe || preset == kAuthorsRecipe;
}

std::vector<int64_t> recipe_depths() {
  std::vector<int64_t> depths;
  for (const Setting& setting : kSettings) depths.push_back(setting.depth);
  return depths;
}

void apply_recipe(Config& config, std::string_view preset, const ModelConfig& wish) {
  if (!is_recipe(preset)) return;
  set_sizes(config.model, wish);
  set_optimizers(config.optim);
  config.train.precision = Precision::kBf16;
  config.train.micro_batch = kMicroBatch;
  config.train.budget = Budget::kPaper;
  if (preset == kAuthorsRecipe) set_authors_own(config, wish.kappa.kappa);
}

}  // namespace anabranch
