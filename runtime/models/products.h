// The matrix products of a forward over one micro-batch, as sizes: what a bench runs alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/autograd/param.h"

namespace anabranch {

// What ModelCost counts a product as: the head is among the linear maps.
enum class ProductRole : uint8_t { kLinear, kFrontEnd, kHead };

// y = x w^T of x [rows, in] and w [out, in]; backward has two more of its size. Where `groups`
// matrices share a call, the rows are divided among them.
struct Product {
  std::string name;
  int64_t rows = 0, in = 0, out = 0;
  int64_t groups = 1;
  int64_t count = 1;  // such calls in a forward
  ProductRole role = ProductRole::kLinear;
  bool wide = false;  // in the accumulator's type in every run

  // Multiply-adds of all those calls.
  [[nodiscard]] double macs() const;
};

// `count` products of `rows` rows with parameters of a shape [out, in] or [groups, out, in].
Product product_of(std::string name, const Param& w, int64_t rows, int64_t count = 1,
                   ProductRole role = ProductRole::kLinear);

// Attention's own products, q k^T and p v, over causal sequences.
struct AttentionProduct {
  std::string name;
  int64_t sequences = 0, heads = 0, tokens = 0, head_width = 0;
  int64_t before = 0;  // keys before the tokens, which all of them see
  int64_t window = 0;  // keys that a token sees, itself among them; 0: all
  int64_t count = 1;   // such calls in a forward

  // Pairs of a token and a key that it sees, in one sequence.
  [[nodiscard]] int64_t pairs() const;
  // Multiply-adds of all those calls.
  [[nodiscard]] double macs() const;
};

struct Products {
  std::vector<Product> linear;
  std::vector<AttentionProduct> attention;

  // Adds one unless it has no work.
  void add(Product p);
  void add_attention(AttentionProduct p);

  // Multiply-adds of the products of a role; what kLinear has is without the head's.
  [[nodiscard]] double macs(ProductRole role) const;
  [[nodiscard]] double attention_macs() const;
};

}  // namespace anabranch
