// A GPT-2 block in parts, which other families take up: attention and feed-forward with biases,
// each after its own layer norm.
//
//   h  = x + W_o attention(W_qkv LN_1(x))
//   x' = h + W_2 gelu(W_1 LN_2(h))
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/nn/layers.h"
#include "core/ops/cached_attention.h"
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

// With ffn_width filled. Throws Error (config) if width is not a multiple of heads, or a size is
// not positive.
Gpt2Options checked(Gpt2Options options);

inline constexpr float kGpt2InitStd = 0.02F;

// Of what adds to the residual stream: smaller, the more additions there are.
Init residual_init(const Gpt2Options& options);

// Dropout at the places of a model: keyed by step, layer, site of the layer and global row.
struct PlacedDropout {
  float rate = 0;
  uint64_t key = 0;
  int64_t first_row = 0;

  // Of one forward; without a key nothing is dropped.
  PlacedDropout(float drop_rate, const MicroBatch& batch, const StepKey* step);

  Var operator()(const Var& x, int64_t layer, int site) const;
};

// How one forward attends and drops: the same block trains, evaluates and decodes.
struct BlockContext {
  std::function<Var(const Var& qkv)> attend;
  std::function<Var(const Var& x, int site)> drop;
};

// For whole sequences. By value: recomputation runs a block when its caller has long returned.
BlockContext whole_context(const MicroBatch& batch, int64_t heads, const PlacedDropout& drop,
                           int64_t layer);
// For new tokens after those in `cache`.
BlockContext cached_context(KvCache& cache, int64_t heads, std::span<const int64_t> new_tokens);

// W_o attention(W_qkv u)
struct Gpt2Attention {
  Linear c_attn;  // [3C, C]: q | k | v
  Linear c_proj;

  Gpt2Attention(const std::string& prefix, const Gpt2Options& options);

  Var operator()(const Var& u, const BlockContext& context) {
    return c_proj(context.attend(c_attn(u)));
  }

  void visit(const auto& f) {
    c_attn.visit(f);
    c_proj.visit(f);
  }
};

// W_2 gelu(W_1 u)
struct Gpt2Mlp {
  Linear c_fc;  // [F, C]
  Linear c_proj;
  GeluForm form;

  Gpt2Mlp(const std::string& prefix, const Gpt2Options& options);

  Var operator()(const Var& u);

  void visit(const auto& f) {
    c_fc.visit(f);
    c_proj.visit(f);
  }
};

struct Gpt2Block {
  LayerNorm ln_1;
  Gpt2Attention attn;
  LayerNorm ln_2;
  Gpt2Mlp mlp;

  Gpt2Block(const std::string& prefix, const Gpt2Options& options);

  Var operator()(const Var& x, const BlockContext& context);

  void visit(const auto& f) {
    ln_1.visit(f);
    attn.visit(f);
    ln_2.visit(f);
    mlp.visit(f);
  }
};

// x_0 = E[ids] + P[positions]
struct Gpt2Tables {
  Param tokens;     // E [V, C], the head too
  Param positions;  // P [context, C]

  explicit Gpt2Tables(const Gpt2Options& options);

  // Without `first` the tokens are whole sequences from position 0.
  Var operator()(Tape* tape, const Tensor& ids, std::span<const int64_t> first = {});

  void visit(const auto& f) {
    f(tokens);
    f(positions);
  }
};

// The products of the dense model's blocks on `sequences` whole sequences, without its head; and
// of a head that reads `width` columns.
Products gpt2_block_products(const Gpt2Options& options, int64_t sequences);
Product head_product(int64_t rows, int64_t width, int64_t vocabulary);

// The arithmetic and parameters of the dense model, for families that replace parts of it.
ModelCost gpt2_cost(const Gpt2Options& options);

}  // namespace anabranch
