#include "runtime/sweep/tiny.h"

#include <algorithm>

namespace anabranch {

namespace {

constexpr int64_t kContext = 16, kHeads = 2, kSteps = 2, kSequences = 2, kEvalTokens = 256;

int64_t multiple_of(int64_t unit, int64_t value) { return (value + unit - 1) / unit * unit; }

// A width that a number of heads divides into even parts.
int64_t small_width(int64_t width) { return std::max<int64_t>(32, multiple_of(16, width / 16)); }

void shrink_family(ModelConfig& model) {
  model.parascale.prefix = std::min<int64_t>(model.parascale.prefix, 4);
  model.cmollm.span = std::min(model.cmollm.span, model.layers);
  KappaKeys& kappa = model.kappa;
  kappa.depth = 0;  // the sizes are given
  kappa.moe_first = std::min(kappa.moe_first, model.layers - 1);
  kappa.moe_layers = std::min(kappa.moe_layers, model.layers - kappa.moe_first);
  kappa.pool_sequences = std::min(kappa.pool_sequences, kSequences);
  MoepKeys& moep = model.moep;
  for (int64_t& window : moep.windows) window = std::max<int64_t>(1, window / 4);
  moep.expert_width = small_width(moep.expert_width);
  moep.expert_heads = kHeads;
  moep.pool_sequences = std::min(moep.pool_sequences, kSequences);
}

}  // namespace

void make_tiny(Config& config) {
  ModelConfig& model = config.model;
  model.preset = "none";  // a recipe has none of these sizes
  const int64_t width = small_width(model.width);
  if (model.width > 0) model.ffn_width = multiple_of(8, model.ffn_width * width / model.width);
  model.width = width;
  model.layers = std::max<int64_t>(2, multiple_of(6, model.layers) / 6);
  model.heads = kHeads;
  model.context = kContext;
  shrink_family(model);

  config.train.steps = kSteps;
  config.train.tokens = 0;
  config.train.epochs = 0;
  config.train.budget = Budget::kNone;
  config.train.micro_batch = kSequences;
  config.train.batch_tokens = 2 * kSequences * kContext;
  config.train.log_every = 1;
  config.optim.warmup_steps = std::min<int64_t>(config.optim.warmup_steps, 1);
  config.checkpoint.every_steps = config.checkpoint.keep_every = 0;
  config.checkpoint.words.clear();
  config.eval.every_steps = 0;
  config.eval.max_tokens = kEvalTokens;
}

}  // namespace anabranch
