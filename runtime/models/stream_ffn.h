// The feed-forward part of cMoLLM: streams of 1x1 kernels, mixed by soft gates before the
// nonlinearity.
//
//   z   = front(u)                                   what the gates read
//   g   = softmax(W_g z + b_g)                       in fp32
//   U   = sum_k g_k (K_k s + b_k),   s = u, or z if the gate site is `feature`
//   Y   = W_down phi(U) + b_down
//   L   = alpha N sum_k p_k^2,   p the mean of g over a sequence
//
// The front-ends, with sg the logistic function and c the running mean of their input:
//
//   linear         u
//   simple         (W_f u + b_f) sg(W_s u + b_s)
//   context_aware  the same of u' = LN(u), times sg(W_2 gelu(W_1 c + b_1) + b_2)
//   multi_head     W_o ((W_f u + b_f) sg(a)) + b_o,   a the gates of H heads side by side
//   adaptive       (W_f u + b_f) mag sg(sens (W_s u + b_s) + bias),   sens, bias, mag of c
//
// Source: the cMoLLM paper, Algorithm 1 and section 4.5.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "parallel/stream_region.h"
#include "runtime/config/family_config.h"
#include "runtime/models/gpt2_block.h"

namespace anabranch {

// Xavier's uniform initialisation, which the paper has for the streams' kernels.
Init xavier(int64_t in, int64_t out);

// What a layer of streams is given beside its input: how to average over the past, and what to do
// with gates.
struct StreamContext {
  std::function<Var(const Var& v)> mean;
  // Takes the gates [rows, N] of a layer and returns `y` carrying their balance loss.
  std::function<Var(const Var& y, const Var& gates)> balance;
  // Sees the streams' input and kernels [N, F, C], if somebody asks.
  std::function<void(const Var& s, const Param& kernels)> probe = {};
};

struct FrontEnd {
  GateVariant variant;
  std::optional<LayerNorm> norm;
  std::optional<Linear> feature, gate, squeeze, excite, scales, fuse;
  std::optional<Param> slices, slices_bias;  // the gate of head_input slice: [H, D, D] and [C]

  FrontEnd(const std::string& prefix, int64_t width, const CmollmKeys& keys);

  Var operator()(const Var& u, const StreamContext& context);
  // Those of `count` calls, to `products`.
  void add_products(Products& products, int64_t rows, int64_t count) const;

  void visit(const auto& f) {
    if (norm) norm->visit(f);
    for (std::optional<Linear>* part : {&feature, &gate}) {
      if (*part) (*part)->visit(f);
    }
    if (slices) {
      f(*slices);
      f(*slices_bias);
    }
    for (std::optional<Linear>* part : {&squeeze, &excite, &scales, &fuse}) {
      if (*part) (*part)->visit(f);
    }
  }

 private:
  Var gated(const Var& u);
};

// How front-ends average over what came before.
MeanForm mean_form(const CmollmKeys& keys);

// Parameters of a front-end, which are its multiply-adds per token but for biases and norms.
struct FrontEndSize {
  int64_t parameters, macs;
};

FrontEndSize front_end_size(int64_t width, const CmollmKeys& keys);

// Where streams lie on several ranks, those split as stream_region.h says: the streams, or the
// hidden axis F of all of them. The rest is on every rank.
struct StreamFfn {
  FrontEnd front;
  Linear router;               // [N, C], in fp32 in every run
  Param streams, stream_bias;  // K [N, F, C], b [N, F]
  Linear down;                 // [C, F]
  bool mixes_after, to_streams;
  MixOrder order;
  GeluForm form;  // of phi; gates, and mixing after phi, have the tanh form
  StreamRegion region;

  StreamFfn(const std::string& prefix, const Gpt2Options& options, const CmollmKeys& keys,
            const StreamRegion& where = {});

  Var operator()(const Var& u, const StreamContext& context);
  // Those of `count` calls of the whole model, to `products`.
  void add_products(Products& products, int64_t rows, int64_t count) const;

  void visit(const auto& f) {
    front.visit(f);
    router.visit(f);
    f(streams);
    f(stream_bias);
    down.visit(f);
  }

 private:
  // U, or sum_k g_k phi(K_k s + b_k), of the streams and hidden units that are here.
  Var mix(const Var& s, const Var& g, SumType sums);
  [[nodiscard]] Var phi(const Var& mixed) const;
  // W_down phi(U) + b_down, with streams or slices of them on several ranks.
  Var of_streams(const Var& s, const Var& g);
  Var of_slices(const Var& s, const Var& g);
};

}  // namespace anabranch
