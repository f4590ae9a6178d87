#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/ops/permute_rows.h"

namespace anabranch::cpu {
namespace {

// Calls each(i, place of row order[i] in its piece) for all rows.
template <class Piece, class Each>
void for_rows(std::span<Piece> pieces, const Tensor& order, int64_t bytes, const Each& each) {
  using Byte = std::remove_pointer_t<decltype(pieces.front().raw())>;
  std::vector<Byte*> rows;
  rows.reserve(static_cast<size_t>(order.count()));
  for (Piece& piece : pieces) {
    for (int64_t r = 0; r < piece.dim(0); ++r) rows.push_back(piece.raw() + r * bytes);
  }
  const auto* index = order.data<int32_t>();
  const int64_t grain = std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(bytes, 1));
  parallel_for(order.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) each(i, rows[static_cast<size_t>(index[i])]);
  });
}

int64_t bytes_of_row(const Tensor& rows) {
  return static_cast<int64_t>(rows.bytes()) / std::max<int64_t>(rows.dim(0), 1);
}

}  // namespace

void check_order(const char* op, const Tensor& order, int64_t rows) {
  std::vector<bool> taken(static_cast<size_t>(rows), false);
  for (const int32_t row : order.span<int32_t>()) {
    AB_CHECK(row >= 0 && row < rows && !taken[static_cast<size_t>(row)], "[", op, "] row ", row,
             " of ", rows, " is not there, or taken twice");
    taken[static_cast<size_t>(row)] = true;
  }
}

void permute_rows_forward(Tensor& y, std::span<const Tensor> pieces, const Tensor& order) {
  const int64_t bytes = bytes_of_row(y);
  std::byte* to = y.raw();
  for_rows(pieces, order, bytes,
           [=](int64_t i, const std::byte* row) { std::copy_n(row, bytes, to + i * bytes); });
}

void permute_rows_backward(std::span<Tensor> dpieces, const Tensor& dy, const Tensor& order) {
  const int64_t bytes = bytes_of_row(dy);
  const std::byte* from = dy.raw();
  for_rows(dpieces, order, bytes,
           [=](int64_t i, std::byte* row) { std::copy_n(from + i * bytes, bytes, row); });
}

void inverse_order(Tensor& inverse, const Tensor& order, const Tensor& places) {
  check_order("inverse_order", order, order.count());
  if (!places.empty()) check_order("inverse_order", places, order.count());
  const auto* from = order.data<int32_t>();
  const auto* place = places.empty() ? nullptr : places.data<int32_t>();
  auto* to = inverse.data<int32_t>();
  for (int64_t i = 0; i < order.count(); ++i) {
    to[place != nullptr ? place[from[i]] : from[i]] = static_cast<int32_t>(i);
  }
}

}  // namespace anabranch::cpu
