#include "core/ops/permute_rows.h"

#include <vector>

#include "core/base/build.h"
#include "core/ops/rows.h"

namespace anabranch {
namespace {

void forward(Tensor& y, std::span<const Tensor> pieces, const Tensor& order) {
  if (y.device().is_cpu()) return cpu::permute_rows_forward(y, pieces, order);
  if constexpr (build::kCuda) return cuda::permute_rows_forward(y, pieces, order);
  AB_FAIL("[permute_rows] no kernel for this device in this build");
}

void backward(std::span<Tensor> dpieces, const Tensor& dy, const Tensor& order) {
  if (dy.device().is_cpu()) return cpu::permute_rows_backward(dpieces, dy, order);
  if constexpr (build::kCuda) return cuda::permute_rows_backward(dpieces, dy, order);
  AB_FAIL("[permute_rows] no kernel for this device in this build");
}

void check_form(const Tensor& order, int64_t rows) {
  AB_CHECK(order.dtype() == DType::kI32 && order.count() == rows, "[permute_rows] the order is ",
           name_of(order.dtype()), order.shape(), " of ", rows, " rows");
}

}  // namespace

Var permute_rows(std::span<const Var> pieces, const Tensor& order) {
  AB_CHECK(!pieces.empty(), "[permute_rows] there are no pieces");
  const Tensor& first = pieces.front().value();
  std::vector<Tensor> from;
  int64_t rows = 0;
  Tape* tape = nullptr;
  for (const Var& piece : pieces) {
    from.push_back(piece.value());
    AB_CHECK(piece.shape().rank() >= 1 && piece.dtype() == first.dtype() &&
                 with_rows(piece.shape(), 1).count() == with_rows(first.shape(), 1).count(),
             "[permute_rows] a piece is ", piece.shape(), " beside ", first.shape());
    rows += piece.dim(0);
    if (piece.tape() != nullptr) tape = piece.tape();
  }
  check_form(order, rows);
  if (order.device().is_cpu()) cpu::check_order("permute_rows", order, rows);
  Tensor y = first.like(with_rows(first.shape(), rows), first.dtype(), "permute_rows");
  forward(y, from, order);
  if (tape == nullptr) return y;
  std::vector<Var> targets;
  std::vector<Shape> shapes;
  for (const Var& piece : pieces) {
    targets.emplace_back(Tensor(), piece.tape(), piece.id());
    shapes.push_back(piece.shape());
  }
  return tape->record("permute_rows", y, {}, [=](Tape& t, const Tensor& dy) {
    std::vector<Tensor> dxs;
    dxs.reserve(shapes.size());
    for (const Shape& shape : shapes) dxs.push_back(dy.like(shape, dy.dtype(), "gradient"));
    backward(dxs, dy, order);
    for (size_t i = 0; i < targets.size(); ++i) t.give(targets[i], dxs[i]);
  });
}

Tensor inverse_order(const Tensor& order, const Tensor& places) {
  check_form(order, order.count());
  if (!places.empty()) check_form(places, order.count());
  Tensor inverse = order.like("inverse_order");
  if (order.device().is_cpu()) {
    cpu::inverse_order(inverse, order, places);
    return inverse;
  }
  if constexpr (build::kCuda) {
    cuda::inverse_order(inverse, order, places);
    return inverse;
  }
  AB_FAIL("[inverse_order] no kernel for this device in this build");
}

}  // namespace anabranch
