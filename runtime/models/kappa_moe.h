// kappa_moe: a mixture-of-experts language model whose experts' gates have slopes that follow the
// router's confidence.
//
//   x = x_0 = norm(E[ids])
//   layer l: x = block_l(resid_l x + x0_l x_0)
//   logits = c tanh(W norm(x) / c),  c the softcap
//
// norm has no gain; nothing has a bias. Blocks: kappa_block.h. With a capacity factor, experts of
// a pool of sequences take so many tokens each, and what a token gets depends on the whole pool;
// without, and in generation, every choice is served.
//
// Sources: Li et al., "Confidence-Adaptive SwiGLU for Mixture-of-Experts", 2026; the backbone is
// that of nanochat.
#pragma once

#include "parallel/regions.h"
#include "runtime/config/model_config.h"
#include "runtime/models/head.h"
#include "runtime/models/kappa_block.h"
#include "runtime/models/model.h"

namespace anabranch {

class KappaMoe final : public Model {
 public:
  // Throws Error (config) if sizes do not fit.
  KappaMoe(const KappaOptions& options, const KappaKeys& keys, const Regions& regions = {});

  void visit(const std::function<void(Param&)>& f) override;
  // Throws Error (config) if the micro-batch is not a whole number of pools.
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

  [[nodiscard]] size_t measure_places(int64_t /*sequences*/) const override {
    return figures_.places();
  }

  [[nodiscard]] size_t detail_places() const override { return gate_figures_.places(); }

  [[nodiscard]] std::vector<Reading> readings(const Measures& measures) const override;

  // In attention alone.
  // A capacity drops choices by what comes later too.
  [[nodiscard]] bool looks_ahead() const override { return keys_.capacity_eval > 0; }

  [[nodiscard]] bool masks_documents() const override { return true; }

  [[nodiscard]] int64_t context() const override { return options_.context; }

  [[nodiscard]] int64_t vocabulary() const override { return options_.vocabulary; }

 private:
  // Of whole sequences, with the capacity that `factor` gives.
  [[nodiscard]] KappaContext whole(const MicroBatch& batch, double factor) const;
  // Rows of this rank that are one pool, or its part of one, in a micro-batch of B sequences of T
  // tokens and pools of `sequences`. Throws Error (config) if they are not whole pools.
  [[nodiscard]] int64_t pool_rows(int64_t sequences, int64_t B, int64_t T) const;
  [[nodiscard]] double balance_at(int64_t step) const;
  // The last state, normed; attention by layer.
  Var hidden(Tape* tape, KappaContext context,
             const std::function<std::function<Var(const Var&)>(size_t layer)>& attention);
  Var hidden(Tape* tape, const MicroBatch& batch, const KappaContext& context);

  KappaOptions options_;
  KappaKeys keys_;
  Regions regions_;
  Param wte_;
  std::vector<KappaBlock> blocks_;
  Param lm_head_;
  Head head_;
  RouterMeasures figures_;
  KappaMeasures gate_figures_;
};

}  // namespace anabranch
