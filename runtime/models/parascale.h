// ParaScale: GPT-2 run on P copies of its input at once, which differ by learned keys and values
// before their tokens alone, and merged by weights of their own making. The weights of the blocks
// are shared.
//
//   X_p    = E[ids] + P[positions]                             p = 1..P
//   H_p    = LN_f(blocks(X_p)), attention over [K_p | keys], [V_p | values]
//   a      = softmax(W_2 silu(W_1 [H_1 | .. | H_P] + b_1) + b_2)
//   logits = (sum_p ((1 - eps) a_p + eps / P) H_p) E^T
//
// P = 1 is GPT-2. Copies may lie on several ranks (copy_region.h), K_p and V_p where copy p is; the
// rest is on every rank. Source: Chen et al., "Parallel Scaling Law for Language Models", 2025.
#pragma once

#include "parallel/copy_region.h"
#include "runtime/config/family_config.h"
#include "runtime/models/gpt2_block.h"
#include "runtime/models/head.h"
#include "runtime/models/model.h"
#include "runtime/models/stream_merge.h"

namespace anabranch {

struct ParascaleBlock {
  Gpt2Block block;
  Param prefix_k, prefix_v;  // [P, n, C], not decayed; unused if P = 1
  int64_t heads;

  ParascaleBlock(const std::string& prefix, const Gpt2Options& options, const ParascaleKeys& keys,
                 const CopyRegion& where);

  [[nodiscard]] bool prefixed() const { return prefix_k.global_shape[0] > 1; }

  // x [sequences * T, C] of the copies that are here, stream-major.
  Var operator()(const Var& x, int64_t sequences);
  // New tokens after those in `cache`, of P * B sequences.
  Var decode(const Var& x, KvCache& cache, std::span<const int64_t> new_tokens);
  // Puts the prefixes into an empty cache.
  void fill(KvCache& cache) const;

  void visit(const auto& f) {
    block.visit(f);
    if (!prefixed()) return;
    f(prefix_k);
    f(prefix_v);
  }
};

class Parascale final : public Model {
 public:
  // Copies lie over the ranks of regions.model; then only one rank that has all of them decodes.
  // Throws Error (config) as checked(), or if dropout is asked for: its places are those of one
  // stream.
  Parascale(const Gpt2Options& options, const ParascaleKeys& keys, const Regions& regions = {});

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

  [[nodiscard]] int64_t context() const override { return options_.context; }

  [[nodiscard]] int64_t vocabulary() const override { return options_.vocabulary; }

 private:
  Var hidden(Tape* tape, const MicroBatch& batch);
  // What the head reads, of the streams' last states [P * rows, C].
  Var merged(const Var& x);

  Gpt2Options options_;
  ParascaleKeys keys_;
  CopyRegion copies_;
  Gpt2Tables tables_;
  std::vector<ParascaleBlock> blocks_;
  LayerNorm ln_f_;
  StreamWeights weights_;
  Head head_;
};

}  // namespace anabranch
