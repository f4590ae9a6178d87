// A transformer block of the MoEP family, over whole sequences or over the rows that an expert
// holds, and where those rows stand to one another.
//
//   h = x + W_o attention(rope(W_qkv LN_1(x)))
//   y = LN_3(h + W_out swiglu(W_in LN_2(h)))
//
// Source: Jain et al., "XpertGPT: Multi-Scale Sparse Expert Routing", 2026, section 3.
#pragma once

#include <string>

#include "core/nn/layers.h"
#include "core/ops/expert_choice.h"
#include "runtime/config/family_config.h"
#include "runtime/models/products.h"

namespace anabranch {

// How the rows of an expert are laid out, and which of them a row sees.
struct RowLayout {
  int64_t segment_rows = 0;  // consecutive rows of the batch that may attend to one another
  int64_t window = 0;        // of distances less than this; 0: no limit
  SlotOrder order = SlotOrder::kTime;
  SlotPosition rope_position = SlotPosition::kOriginal;
  SlotPosition window_position = SlotPosition::kOriginal;
  bool both_ways = false;  // a row sees those after it too, within the window
};

// The rows of one expert, segment by segment; a row sees itself and those before it from first_key
// on, and up to last_key if there is one.
struct ExpertRows {
  Tensor slots;      // [S] int32: of the plan
  Tensor source;     // [S] int32: their rows
  Tensor positions;  // [S] int32, of RoPE
  Tensor first_key;  // [1, S] int32
  Tensor last_key;   // the same, or empty
};

// The slots of expert `e` of `plan`, which has them by index.
//
//   gates    the scores that plan.gate indexes, float32 or float64; read by kAffinity alone
//   numbers  [plan.rows] int32: where each row stands in the batch; empty: 0, 1, ..
ExpertRows arrange_rows(const SlotPlan& plan, int64_t e, const Tensor& gates,
                        const RowLayout& layout, const Tensor& numbers = {});

struct WindowBlockSizes {
  int64_t width, heads, ffn_width;
};

inline constexpr float kMoepInitStd = 0.02F;

struct WindowBlock {
  LayerNorm ln_1;
  Linear qkv;  // [3C, C]: q | k | v
  Linear proj;
  LayerNorm ln_2;
  Linear in;  // [2F, C]: gate | up
  Linear out;
  LayerNorm ln_3;
  int64_t heads;

  // Attention's and feed-forward's names begin with `attention` and `ffn`, all of them after
  // `prefix`.
  WindowBlock(const std::string& prefix, const std::string& attention, const std::string& ffn,
              const WindowBlockSizes& o);

  // x [N, C] of `batch` equal sequences; positions [N]; keys as in attention().
  Var operator()(const Var& x, int64_t batch, const Tensor& positions, const Tensor& first_key = {},
                 const Tensor& last_key = {});

  // Its linear maps of `count` calls, to `products`; their names begin with `name`.
  void add_products(Products& products, const std::string& name, int64_t rows, int64_t count) const;

  void visit(const auto& f) {
    ln_1.visit(f);
    qkv.visit(f);
    proj.visit(f);
    ln_2.visit(f);
    in.visit(f);
    out.visit(f);
    ln_3.visit(f);
  }
};

}  // namespace anabranch
