// The end of a model of P streams: what weighs them, by all of them together.
//
//   a = softmax(W_2 phi(W_1 [H_1 | .. | H_P] + b_1) + b_2)      mlp
//   a = softmax(W_a [H_1 | .. | H_P])                           linear
//
// Sources: ParScale (arXiv 2505.10475); the cMoLLM paper, Eq. 7, 8 and 15.
#pragma once

#include <optional>
#include <string>

#include "core/nn/layers.h"
#include "runtime/models/products.h"

namespace anabranch {

struct StreamWeights {
  enum class Form : uint8_t { kSilu, kGelu, kLinear };

  std::optional<Linear> hidden;  // [C, P * C]
  Linear score;                  // [P, C], or [P, P * C] without bias; in fp32 in every run
  Form form;

  StreamWeights(const std::string& prefix, int64_t width, int64_t streams, Form weight_form);

  // The weights [rows, P] of folded streams [rows, P * C].
  Var operator()(const Var& folded);

  // Those of `count` calls, to `products`.
  void add_products(Products& products, int64_t rows, int64_t count) const;

  void visit(const auto& f) {
    if (hidden) hidden->visit(f);
    score.visit(f);
  }
};

// new_tokens for each of P streams, stream-major.
std::vector<int64_t> repeat_counts(std::span<const int64_t> new_tokens, int64_t streams);

}  // namespace anabranch
