// The `optim` section: AdamW, an optimizer of matrices beside it, and their rates over a run.
#pragma once

#include <cstdint>

#include "runtime/config/values.h"

namespace anabranch {

struct OptimConfig {
  double lr = 6e-4, min_lr_ratio = 0.1;
  int64_t warmup_steps = 0;
  ScheduleForm schedule = ScheduleForm::kCosine;
  double warmdown = 0.5;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1;
  // AdamW's rates by what a parameter is; 0: lr
  double embedding_lr = 0, head_lr = 0, residual_lr = 0, input_residual_lr = 0;
  double input_residual_beta1 = 0;
  // the parameters of kappa
  double kappa_lr = 0, kappa_lr_end = 0, kappa_freeze = 0;
  int64_t kappa_warmup_steps = 0;
  bool kappa_scaled = false;
  // matrices
  MatrixOptimizer matrix = MatrixOptimizer::kAdamw;
  double matrix_lr = 0.02, matrix_weight_decay = 0, momentum = 0.95;
  int64_t momentum_warmup_steps = 0, polar_steps = 12, aurora_rounds = 2;
  double aurora_balance = 0.5;
  MatrixScale matrix_scale = MatrixScale::kAspect;
  // how rates follow sizes
  bool scale_by_width = false, scale_by_batch = false, decay_by_depth = false;
  bool decay_to_zero = false;

  void visit(auto&& f) {
    visit_adamw(f);
    visit_roles(f);
    visit_matrix(f);
    visit_scaling(f);
  }

  bool operator==(const OptimConfig&) const = default;

 private:
  void visit_adamw(auto&& f) {
    f("lr", lr, 0.0, 10.0, "peak learning rate, reached after warm-up");
    f("min_lr_ratio", min_lr_ratio, 0.0, 1.0, "last learning rate as a share of lr");
    f("warmup_steps", warmup_steps, int64_t{0}, kMaxCount, "steps of linear warm-up");
    f("schedule", schedule,
      "after warm-up: half a cosine, constant, or constant and then linear over warmdown");
    f("warmdown", warmdown, 0.0, 1.0, "share of the run over which schedule linear falls");
    f("beta1", beta1, 0.0, 0.999999, "decay of the first moment");
    f("beta2", beta2, 0.0, 0.999999, "decay of the second moment");
    f("eps", eps, 1e-16, 1.0, "added to the root of the second moment");
    f("weight_decay", weight_decay, 0.0, 10.0, "decoupled decay of AdamW's matrices, times lr");
    f("clip", clip, 0.0, 1e9, "largest norm of the whole gradient; 0: no clipping");
  }

  void visit_roles(auto&& f) {
    f("embedding_lr", embedding_lr, 0.0, 10.0, "AdamW's lr for embedding tables; 0: lr");
    f("head_lr", head_lr, 0.0, 10.0, "AdamW's lr for an untied head; 0: lr");
    f("residual_lr", residual_lr, 0.0, 10.0, "lr of per-layer residual scalars; 0: lr");
    f("input_residual_lr", input_residual_lr, 0.0, 10.0,
      "lr of per-layer scalars of the input embedding; 0: lr");
    f("input_residual_beta1", input_residual_beta1, 0.0, 0.999999, "their beta1; 0: beta1");
    f("kappa_lr", kappa_lr, 0.0, 10.0, "peak lr of alpha and b; 0: lr and its schedule");
    f("kappa_lr_end", kappa_lr_end, 0.0, 10.0, "their last lr, reached linearly");
    f("kappa_freeze", kappa_freeze, 0.0, 1.0, "share of the run in which they do not move");
    f("kappa_warmup_steps", kappa_warmup_steps, int64_t{0}, kMaxCount,
      "steps after the freeze until their peak lr");
    f("kappa_scaled", kappa_scaled,
      "their lr also follows width, batch and the common schedule, and their moments move while "
      "they are frozen");
  }

  void visit_matrix(auto&& f) {
    f("matrix", matrix, "what updates the matrices of the blocks");
    f("matrix_lr", matrix_lr, 0.0, 10.0, "peak lr of muon and aurora");
    f("matrix_weight_decay", matrix_weight_decay, 0.0, 10.0, "their decoupled decay, times lr");
    f("momentum", momentum, 0.0, 0.999999, "their momentum");
    f("momentum_warmup_steps", momentum_warmup_steps, int64_t{0}, kMaxCount,
      "steps over which it rises from 0.85");
    f("polar_steps", polar_steps, int64_t{1}, int64_t{64},
      "iterations of aurora's orthogonalisation");
    f("aurora_rounds", aurora_rounds, int64_t{1}, int64_t{16}, "orthogonalisations of an update");
    f("aurora_balance", aurora_balance, 0.0, 1.0, "exponent of the row balancing between them");
    f("matrix_scale", matrix_scale,
      "size of an update: aspect: sqrt(max(1, rows/columns)); rms: min(1, 0.2 sqrt(longer side))");
  }

  void visit_scaling(auto&& f) {
    f("scale_by_width", scale_by_width,
      "AdamW's lr of embeddings and head times sqrt(768 / model.width)");
    f("scale_by_batch", scale_by_batch, "every lr times sqrt(train.batch_tokens / 2^19)");
    f("decay_by_depth", decay_by_depth, "matrix_weight_decay times (12 / model.layers)^2");
    f("decay_to_zero", decay_to_zero, "matrix_weight_decay falls linearly to 0 over the run");
  }
};

}  // namespace anabranch
