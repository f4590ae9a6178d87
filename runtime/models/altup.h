// AltUp: a residual stream of K blocks, of which each layer computes on one and predicts the
// others. Everything else is GPT-2's.
//
//   xh_i = sum_j p_ij x_j                        predict
//   xt   = block_l(x_j*)                         compute, on the old block j*
//   x_i  = xh_i + g_i (xt - xh_j*)               correct
//
// Recycled: x_i = E[ids] + P[positions] for each i, and the end is LN_f(sum_i x_i / K) E^T.
// Otherwise tables and head are K times as wide. At first p = I and g = 1: the recycled model is
// GPT-2.
//
// Source: Baykal et al., "Alternating Updates for Efficient Transformers", 2023.
#pragma once

#include "runtime/config/family_config.h"
#include "runtime/models/gpt2_block.h"
#include "runtime/models/head.h"
#include "runtime/models/model.h"

namespace anabranch {

struct AltupBlock {
  Gpt2Block block;
  Param predict;  // p [K, K], not decayed
  Param correct;  // g [K], not decayed
  int64_t active;

  AltupBlock(const std::string& prefix, const Gpt2Options& options, const AltupKeys& keys,
             int64_t layer);

  // x [N, K * C], its blocks side by side.
  Var operator()(const Var& x, const BlockContext& context);

  void visit(const auto& f) {
    block.visit(f);
    f(predict);
    f(correct);
  }
};

class Altup final : public Model {
 public:
  // Throws Error (config) as checked().
  Altup(const Gpt2Options& options, const AltupKeys& keys);

  void visit(const std::function<void(Param&)>& f) override;
  Var loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) override;
  using Model::token_losses;
  Tensor token_losses(const MicroBatch& batch, Routing routing) override;
  Tensor logits(const Tensor& ids) override;
  Tensor decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                       DecodeState& state) override;
  [[nodiscard]] DecodeState decode_state(int64_t batch, int64_t tokens) const override;

  [[nodiscard]] const Head& head() const override { return head_; }

  [[nodiscard]] ModelCost cost() const override;
  [[nodiscard]] Products products(int64_t sequences) const override;

  [[nodiscard]] bool masks_documents() const override { return true; }

  [[nodiscard]] int64_t context() const override { return options_.context; }

  [[nodiscard]] int64_t vocabulary() const override { return options_.vocabulary; }

 private:
  // The first state, from the tables' rows; and what the head reads, from the last one.
  [[nodiscard]] Var first(const Var& rows) const;
  Var last(const Var& x);
  Var hidden(Tape* tape, const MicroBatch& batch, const StepKey* key);

  Gpt2Options options_;
  AltupKeys keys_;
  Gpt2Tables tables_;
  std::vector<AltupBlock> blocks_;
  LayerNorm ln_f_;
  Head head_;
};

}  // namespace anabranch
