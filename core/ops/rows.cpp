#include "core/ops/rows.h"

#include <algorithm>
#include <numeric>

#include "core/base/build.h"
#include "core/ops/linear.h"

namespace anabranch {
namespace {

void add_row(Tensor& y, const Tensor& x, const Tensor& b) {
  if (x.device().is_cpu()) return cpu::add_row(y, x, b);
  if constexpr (build::kCuda) return cuda::add_row(y, x, b);
  AB_FAIL("[add_row] no kernel for this device in this build");
}

void add_row_backward(GradSink& db, const Tensor& dy) {
  if (dy.device().is_cpu()) return cpu::column_sums(db, dy);
  if constexpr (build::kCuda) return cuda::add_row_backward(db, dy);
  AB_FAIL("[add_row] no kernel for this device in this build");
}

}  // namespace

Shape with_rows(const Shape& shape, int64_t rows) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  extents.front() = rows;
  return {extents.begin(), extents.end()};
}

Tensor rows_of(const Tensor& x, int64_t first, int64_t count) {
  const int64_t row = x.dim(0) > 0 ? x.count() / x.dim(0) : 0;
  return x.view(first * row, with_rows(x.shape(), count));
}

std::vector<Var> split_rows(const Var& x, int64_t rows) {
  AB_CHECK(x.shape().rank() > 0 && rows > 0, "[split_rows] x is ", x.shape(), ", in parts of ",
           rows, " rows");
  std::vector<int64_t> counts;
  for (int64_t first = 0; first < x.dim(0); first += rows) {
    counts.push_back(std::min(rows, x.dim(0) - first));
  }
  if (counts.empty()) return {x};
  return split_rows(x, counts);
}

std::vector<Var> split_rows(const Var& x, const std::vector<int64_t>& counts) {
  AB_CHECK(
      x.shape().rank() > 0 && std::accumulate(counts.begin(), counts.end(), int64_t{0}) == x.dim(0),
      "[split_rows] x is ", x.shape(), ", and ", counts.size(), " parts have other rows");
  if (counts.size() == 1) return {x};
  std::vector<Tensor> ys;
  int64_t first = 0;
  for (const int64_t count : counts) {
    ys.push_back(rows_of(x.value(), first, count));
    first += count;
  }
  if (x.tape() == nullptr) return {ys.begin(), ys.end()};
  return x.tape()->record_many("split_rows", std::move(ys), {},
                               [x, counts](Tape& t, std::span<Tensor> dys) {
                                 if (!t.wants(x)) return;
                                 const Tensor dx = x.value().like("gradient");
                                 int64_t at = 0;
                                 for (size_t k = 0; k < dys.size(); ++k) {
                                   Tensor part = rows_of(dx, at, counts[k]);
                                   if (dys[k].empty()) {
                                     part.fill_zero();
                                   } else {
                                     part.copy_from(dys[k]);
                                   }
                                   at += counts[k];
                                 }
                                 t.give(x, dx);
                               });
}

Var join_rows(const Tensor& whole, std::span<const Var> parts) {
  Tape* tape = nullptr;
  int64_t first = 0;
  for (const Var& part : parts) {
    const Tensor& v = part.value();
    AB_CHECK(
        v.shares(whole) && v.dtype() == whole.dtype() && v.shape().rank() > 0 &&
            first + v.dim(0) <= whole.dim(0) && v.raw() == rows_of(whole, first, v.dim(0)).raw(),
        "[join_rows] a part of ", v.shape(), " is not rows ", first, " and on of ", whole.shape());
    first += v.dim(0);
    if (tape == nullptr) tape = part.tape();
  }
  AB_CHECK(first == whole.dim(0), "[join_rows] parts have ", first, " rows of ", whole.shape());
  if (tape == nullptr) return whole;
  std::vector<Var> places;  // the values are not needed again
  std::vector<int64_t> counts;
  for (const Var& part : parts) {
    places.emplace_back(Tensor(), part.tape(), part.id());
    counts.push_back(part.dim(0));
  }
  return tape->record("join_rows", whole, {}, [places, counts](Tape& t, const Tensor& dy) {
    int64_t at = 0;
    for (size_t k = 0; k < places.size(); ++k) {
      t.give(places[k], rows_of(dy, at, counts[k]));
      at += counts[k];
    }
  });
}

Var add_row(const Var& x, Param& b, DType type) {
  const DType sums = accumulator_of(type);
  AB_CHECK(x.shape().rank() == 2 && b.value.shape() == Shape({x.dim(1)}), "[add_row] x is ",
           x.shape(), " but b ", b.value.shape());
  AB_CHECK((x.dtype() == type || x.dtype() == sums) && b.value.dtype() == sums, "[add_row] x is ",
           name_of(x.dtype()), " and b ", name_of(b.value.dtype()), " for ", name_of(type));
  Tensor y = x.value().like(x.shape(), type, "add_row");
  add_row(y, x.value(), b.value);
  if (x.tape() == nullptr) return y;
  const Var place(Tensor(), x.tape(), x.id());
  return x.tape()->record("add_row", y, {&b}, [place, &b](Tape& t, const Tensor& dy) {
    GradSink db = t.grad(b);
    add_row_backward(db, dy);
    t.give(place, dy);
  });
}

}  // namespace anabranch
