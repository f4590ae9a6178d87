// GPT-2: learned positions, pre-norm blocks, biases everywhere, a tied head without bias. With a
// document mask attention stays within documents; positions go on from one to the next.
//
//   x_0     = E[ids] + P[positions]
//   x_{l+1} = block_l(x_l)                 gpt2_block.h
//   logits  = LN_f(x_L) E^T
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include "runtime/models/gpt2_block.h"
#include "runtime/models/head.h"
#include "runtime/models/model.h"

namespace anabranch {

class Gpt2 final : public Model {
 public:
  // Throws Error (config) as checked().
  explicit Gpt2(const Gpt2Options& options);

  void visit(const std::function<void(Param&)>& f) override;
  Var loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) override;
  using Model::token_losses;
  Tensor token_losses(const MicroBatch& batch, Routing routing) override;
  Tensor logits(const Tensor& ids) override;
  Tensor decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                       DecodeState& state) override;
  [[nodiscard]] DecodeState decode_state(int64_t batch, int64_t tokens) const override;

  [[nodiscard]] const Head& head() const override { return head_; }

  [[nodiscard]] ModelCost cost() const override { return gpt2_cost(options_); }

  [[nodiscard]] Products products(int64_t sequences) const override;

  [[nodiscard]] bool masks_documents() const override { return true; }

  [[nodiscard]] int64_t context() const override { return options_.context; }

  [[nodiscard]] int64_t vocabulary() const override { return options_.vocabulary; }

 private:
  // The final hidden states [B * T, C] of whole sequences.
  Var hidden(Tape* tape, const MicroBatch& batch, const StepKey* key);

  Gpt2Options options_;
  Gpt2Tables tables_;
  std::vector<Gpt2Block> blocks_;
  LayerNorm ln_f_;
  Head head_;
};

}  // namespace anabranch
