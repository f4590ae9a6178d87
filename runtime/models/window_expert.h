// A transformer block of the MoEP family, over whole sequences or over the rows that an expert
// holds.
//
//   h = x + W_o attention(rope(W_qkv LN_1(x)))
//   y = LN_3(h + W_out swiglu(W_in LN_2(h)))
//
// Source: Jain et al., "XpertGPT: Multi-Scale Sparse Expert Routing", 2026, section 3.
#pragma once

#include <string>

#include "core/nn/layers.h"
#include "runtime/models/products.h"

namespace anabranch {

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
