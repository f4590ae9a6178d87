// The matrix products of a model, each alone on random values: what a step can at best take.
#pragma once

#include <memory>

#include "core/autograd/tape.h"
#include "core/ops/groups.h"
#include "core/tensor/pool.h"
#include "runtime/models/products.h"

namespace anabranch {

// Of one call of y = x w^T, or of dx or dw: operations; bytes that y or dx, and dw, at least read
// and write.
struct ProductCost {
  double flops, row_bytes, dw_bytes;
};

[[nodiscard]] ProductCost cost_of(const Product& product, int64_t rows, DType type);

// One call of a linear product: y = x w^T, dx = dy w, dw += dy^T x. Products of several matrices
// are grouped_linear's.
class ProductRun {
 public:
  //   rows  of the call: those of `product`, or of a piece of the head, whose y is wide
  //   type  the run's compute type
  ProductRun(const Product& product, int64_t rows, DType type, const std::shared_ptr<Pool>& pool);

  void y();
  void dx();
  void dw();

  void all() {
    y();
    dx();
    dw();
  }

  // Of each of the three.
  [[nodiscard]] double flops() const;

 private:
  Groups groups_;
  Tensor x_, w_, y_, dx_, dy_, dw_;
};

// Rows of a product that run at a time: the head's logits never all exist at once.
[[nodiscard]] int64_t rows_at_once(const Product& product, DType type);

// One call of attention.
class AttentionRun {
 public:
  AttentionRun(const AttentionProduct& product, DType type, const std::shared_ptr<Pool>& pool);

  // Its products alone, forward and backward, by blocks of queries as the op has them.
  void products() const;
  // The op, forward and backward: both.
  void op() const;

  [[nodiscard]] Var forward(Tape* tape) const;

  // [rows, C]
  [[nodiscard]] const Tensor& dy() const { return dy_; }

 private:
  AttentionProduct product_;
  Tensor qkv_, dy_, first_key_;
  Tensor keys_, scores_;  // of one head
};

// Seconds of the products of a micro-batch: medians of three calls after one of warm-up.
struct ProductSeconds {
  double linear = 0;           // front-ends and the head among them
  double attention = 0;        // its products alone
  double whole_attention = 0;  // the op
};

ProductSeconds time_products(const Products& products, DType type,
                             const std::shared_ptr<Pool>& pool);

}  // namespace anabranch
