// MoEP-MSIT: blocks of a dense part and window experts that choose their rows.
//
// How rows are chosen, in training and (as trained) in evaluation:
//
//   ec_batch      an expert takes the k largest scores of a pool of sequences: it looks ahead
//   ec_seq        the same, every sequence a pool
//   threshold     score >= theta, a moving average of those k-th scores; before the first step as
//                 ec_batch
//   predictor     trains as ec_batch; evaluation, however routed, asks a predictor of membership
//   token_choice  each row takes its k experts
//
// Routing::kCausal chooses by thresholds where the training looks ahead, and lets a row of an
// expert see rows of its own sequence alone, in time, whatever `order` and `segments` say.
//
// With causal_ratio below 1 some steps are masked (masked_batch.h): their attention goes both ways,
// to distances below the window; thresholds move as in the others. Nothing but training is masked.
//
// Source: Jain et al., "XpertGPT: Multi-Scale Sparse Expert Routing", 2026.
#pragma once

#include <deque>

#include "parallel/regions.h"
#include "runtime/models/head.h"
#include "runtime/models/moep_block.h"

namespace anabranch {

// With widths filled. Throws Error (config) if a size is not positive.
MoepOptions checked(MoepOptions options);

class MoepMsit final : public Model {
 public:
  // Throws Error (config) as checked(), or if experts attend over pools that lie on several ranks.
  explicit MoepMsit(const MoepOptions& options, const Regions& regions = {});

  void visit(const std::function<void(Param&)>& f) override;
  void visit_buffers(const std::function<void(Buffer&)>& f) override;
  // In a masked step the mean is over the masked tokens, each of the weight that makes it the same
  // part of the step as a causal one. Throws Error (config) if the sequences of a pool do not
  // divide the batch.
  Var loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) override;
  // Of a batch that is masked already: scale * (sum over the targets that are not -1).
  Var masked_loss(Tape& tape, const MicroBatch& masked, const StepKey& key, double scale);
  using Model::token_losses;
  Tensor token_losses(const MicroBatch& batch, Routing routing) override;
  // As in training, the predictor's model too: each call is a batch of pools.
  Tensor logits(const Tensor& ids) override;
  // Causal routing of all tokens so far: state.ids has them.
  Tensor decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                       DecodeState& state) override;
  [[nodiscard]] DecodeState decode_state(int64_t batch, int64_t tokens) const override;

  [[nodiscard]] const Head& head() const override { return head_; }

  [[nodiscard]] ModelCost cost() const override;
  [[nodiscard]] Products products(int64_t sequences) const override;

  [[nodiscard]] bool looks_ahead() const override;
  // Figures of the experts; then the k-th score of each pool of the step, layer, expert.
  [[nodiscard]] size_t measure_places(int64_t sequences) const override;
  void end_step(const Measures& measures) override;
  [[nodiscard]] std::vector<Reading> readings(const Measures& measures) const override;

  [[nodiscard]] int64_t context() const override { return options_.context; }

  [[nodiscard]] int64_t vocabulary() const override { return options_.vocabulary; }

 private:
  void check_pools(int64_t sequences) const;
  Var loss_of(Tape& tape, const MicroBatch& batch, const StepKey& key, MoepPass pass, double scale);
  Var hidden(Tape* tape, const MicroBatch& batch, const StepKey* key, const MoepPass& pass);
  // B and T of a batch; without the predictor and as trained.
  [[nodiscard]] MoepPass pass_of(const Tensor& ids) const;

  MoepOptions options_;
  Regions regions_;
  Param tokens_;  // E [V, C], the head too
  std::deque<MoepBlock> blocks_;
  LayerNorm ln_f_;
  Head head_;
};

}  // namespace anabranch
