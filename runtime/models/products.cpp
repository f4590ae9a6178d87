#include "runtime/models/products.h"

#include <algorithm>
#include <utility>

namespace anabranch {

double Product::macs() const {
  return static_cast<double>(count) * static_cast<double>(rows) * static_cast<double>(in * out);
}

Product product_of(std::string name, const Param& w, int64_t rows, int64_t count,
                   ProductRole role) {
  const Shape& shape = w.global_shape;
  const int64_t groups = shape.rank() == 3 ? shape[0] : 1;
  return {std::move(name), rows, shape[-1], shape[-2], groups, count, role, w.wide};
}

int64_t AttentionProduct::pairs() const {
  const int64_t full = window > 0 ? std::min(window, tokens) : tokens;  // of the last token
  return tokens * before + full * (full + 1) / 2 + (tokens - full) * full;
}

double AttentionProduct::macs() const {
  return 2 * static_cast<double>(count * sequences * heads) *
         static_cast<double>(pairs() * head_width);
}

void Products::add(Product p) {
  if (p.rows * p.in * p.out * p.groups * p.count > 0) linear.push_back(std::move(p));
}

void Products::add_attention(AttentionProduct p) {
  if (p.sequences * p.tokens * p.count > 0) attention.push_back(std::move(p));
}

double Products::macs(ProductRole role) const {
  double sum = 0;
  for (const Product& p : linear) sum += p.role == role ? p.macs() : 0;
  return sum;
}

double Products::attention_macs() const {
  double sum = 0;
  for (const AttentionProduct& p : attention) sum += p.macs();
  return sum;
}

}  // namespace anabranch
