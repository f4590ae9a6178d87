#include "runtime/models/stream_merge.h"

#include "core/ops/gelu.h"
#include "core/ops/sigmoid_gate.h"
#include "core/ops/softmax.h"
#include "runtime/models/gpt2_block.h"

namespace anabranch {

StreamWeights::StreamWeights(const std::string& prefix, int64_t width, int64_t streams,
                             Form weight_form)
    : score(prefix + "score", weight_form == Form::kLinear ? streams * width : width, streams,
            weight_form != Form::kLinear, Init::normal(kGpt2InitStd)),
      form(weight_form) {
  score.weight.wide = true;
  if (weight_form == Form::kLinear) return;
  hidden.emplace(prefix + "hidden", streams * width, width, true, Init::normal(kGpt2InitStd));
}

Var StreamWeights::operator()(const Var& folded) {
  if (form == Form::kLinear) return softmax(score(folded));
  const Var h = (*hidden)(folded);
  return softmax(score(form == Form::kSilu ? sigmoid_gate(h, h) : gelu(h, GeluForm::kTanh)));
}

void StreamWeights::add_products(Products& products, int64_t rows, int64_t count) const {
  constexpr ProductRole kRole = ProductRole::kFrontEnd;
  if (hidden) products.add(product_of("merge hidden", hidden->weight, rows, count, kRole));
  products.add(product_of("merge score", score.weight, rows, count, kRole));
}

std::vector<int64_t> repeat_counts(std::span<const int64_t> new_tokens, int64_t streams) {
  std::vector<int64_t> all;
  for (int64_t p = 0; p < streams; ++p) {
    all.insert(all.end(), new_tokens.begin(), new_tokens.end());
  }
  return all;
}

}  // namespace anabranch
