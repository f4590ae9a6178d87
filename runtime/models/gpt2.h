// GPT-2: learned positions, pre-norm blocks, biases everywhere, a tied head without bias. With a
// document mask attention stays within documents; positions go on from one to the next.
//
//   x_0     = E[ids] + P[positions]
//   h       = x_l + W_o attention(W_qkv LN_1(x_l))
//   x_{l+1} = h + W_2 gelu(W_1 LN_2(h))
//   logits  = LN_f(x_L) E^T
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include <string>

#include "core/nn/layers.h"
#include "core/ops/gelu.h"
#include "runtime/models/model.h"

namespace anabranch {

struct Gpt2Options {
  int64_t layers = 12, width = 768, heads = 12, context = 1024;
  int64_t vocabulary = 50257;
  int64_t ffn_width = 0;  // 0: 4 * width
  float dropout = 0;      // on the embedding and on what each sublayer adds
  double norm_eps = 1e-5;
  GeluForm gelu = GeluForm::kTanh;
  bool recompute = false;  // keep each block's input alone, run the block again in backward
  DType compute = DType::kF32;
};

// How one forward attends and drops: the same block trains, evaluates and decodes.
struct BlockContext {
  std::function<Var(const Var& qkv)> attend;
  std::function<Var(const Var& x, int site)> drop;
};

struct Gpt2Block {
  LayerNorm ln_1;
  Linear c_attn;  // [3C, C]: q | k | v
  Linear attn_proj;
  LayerNorm ln_2;
  Linear c_fc;  // [F, C]
  Linear mlp_proj;
  GeluForm gelu_form;

  Gpt2Block(const std::string& prefix, const Gpt2Options& options);

  Var operator()(const Var& x, const BlockContext& context);

  void visit(const auto& f) {
    ln_1.visit(f);
    c_attn.visit(f);
    attn_proj.visit(f);
    ln_2.visit(f);
    c_fc.visit(f);
    mlp_proj.visit(f);
  }
};

class Gpt2 final : public Model {
 public:
  // Throws Error if width is not a multiple of heads, or a size is not positive.
  explicit Gpt2(const Gpt2Options& options);

  void visit(const std::function<void(Param&)>& f) override;
  Var loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) override;
  Tensor token_losses(const MicroBatch& batch) override;
  Tensor logits(const Tensor& ids) override;
  Tensor decode(const Tensor& ids, std::span<const int64_t> new_tokens,
                DecodeState& state) override;
  [[nodiscard]] DecodeState decode_state(int64_t batch, int64_t tokens) const override;
  [[nodiscard]] ModelCost cost() const override;

  [[nodiscard]] bool masks_documents() const override { return true; }

  [[nodiscard]] int64_t context() const override { return options_.context; }

  [[nodiscard]] int64_t vocabulary() const override { return options_.vocabulary; }

 private:
  // The logits of final hidden states [N, C], in fp32 (float64) whatever the compute type.
  [[nodiscard]] Tensor head(const Tensor& x) const;
  // The final hidden states [B * T, C] of whole sequences.
  Var hidden(Tape* tape, const MicroBatch& batch, const StepKey* key);

  Gpt2Options options_;
  Param tokens_;     // E [V, C], the head too
  Param positions_;  // P [context, C]
  std::vector<Gpt2Block> blocks_;
  LayerNorm ln_f_;
};

}  // namespace anabranch
