#include "parallel/exchange.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/parallel_for.h"
#include "core/ops/rows.h"

namespace anabranch {
namespace {

int64_t sum(const std::vector<int64_t>& all) {
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

// Calls each(i, place of row order[i] in its piece) for all rows.
template <class Piece, class Each>
void for_rows(std::vector<Piece>& pieces, const Tensor& order, int64_t bytes, const Each& each) {
  std::vector<std::byte*> rows;
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

void check_order(const Tensor& order, int64_t rows) {
  AB_CHECK(order.dtype() == DType::kI32 && order.count() == rows, "[permute_rows] the order is ",
           name_of(order.dtype()), order.shape(), " of ", rows, " rows");
  std::vector<bool> taken(static_cast<size_t>(rows), false);
  for (const int32_t row : order.span<int32_t>()) {
    AB_CHECK(row >= 0 && row < rows && !taken[static_cast<size_t>(row)], "[permute_rows] row ", row,
             " of ", rows, " is not there, or taken twice");
    taken[static_cast<size_t>(row)] = true;
  }
}

}  // namespace

int64_t RowCounts::sent() const { return sum(out); }

int64_t RowCounts::received() const { return sum(in); }

int64_t RowMoves::received() const {
  return std::accumulate(in.begin(), in.end(), int64_t{0},
                         [](int64_t rows, const RowSegment& s) { return rows + s.rows; });
}

PendingExchange exchange_rows_start(const Var& x, const RowCounts& counts, Group* group) {
  return exchange_rows_start(x, RowMoves{in_rank_order(counts.out), in_rank_order(counts.in)},
                             group);
}

PendingExchange exchange_rows_start(const Var& x, RowMoves moves, Group* group) {
  PendingExchange pending;
  pending.handle = x;
  pending.moves = std::move(moves);
  pending.group = group;
  if (group == nullptr || group->size() == 1) return pending;
  const Tensor& rows = x.value();
  pending.y =
      rows.like(with_rows(rows.shape(), pending.moves.received()), rows.dtype(), "exchange_rows");
  pending.work = group->all_to_all_segments(pending.y, rows, pending.moves.out, pending.moves.in);
  if (x.tape() == nullptr) return pending;
  pending.backward = std::make_shared<Work>();
  const Var to({}, x.tape(), x.id());  // its value is not needed again
  // dx is already the gradient of x; what is left is to wait until it is there.
  pending.handle = x.tape()->record("exchange_rows_start", rows, {},
                                    [to, work = pending.backward](Tape& t, const Tensor& dx) {
                                      work->wait();
                                      t.give(to, dx);
                                    });
  return pending;
}

Var exchange_rows_finish(const PendingExchange& pending) {
  const Var& x = pending.handle;
  if (pending.group == nullptr || pending.group->size() == 1) return x;
  pending.work.wait();
  if (x.tape() == nullptr) return pending.y;
  const Var to({}, x.tape(), x.id());
  return x.tape()->record("exchange_rows_finish", pending.y, {},
                          [to, shape = x.shape(), moves = pending.moves, group = pending.group,
                           work = pending.backward](Tape& t, const Tensor& dy) {
                            const Tensor dx = dy.like(shape, dy.dtype(), "gradient");
                            *work = group->all_to_all_segments(dx, dy, moves.in, moves.out);
                            t.give(to, dx);
                          });
}

Var permute_rows(std::span<const Var> pieces, const Tensor& order) {
  AB_CHECK(!pieces.empty(), "[permute_rows] there are no pieces");
  std::vector<Tensor> from;
  int64_t rows = 0;
  Tape* tape = nullptr;
  for (const Var& piece : pieces) {
    from.push_back(piece.value());
    AB_CHECK(piece.shape().rank() >= 1 && piece.dtype() == from[0].dtype() &&
                 row_bytes(from.back()) == row_bytes(from[0]),
             "[permute_rows] a piece is ", piece.shape(), " beside ", from[0].shape());
    rows += piece.dim(0);
    if (piece.tape() != nullptr) tape = piece.tape();
  }
  check_order(order, rows);
  const int64_t bytes = row_bytes(from[0]);
  Tensor y = from[0].like(with_rows(from[0].shape(), rows), from[0].dtype(), "permute_rows");
  std::byte* to = y.raw();
  for_rows(from, order, bytes,
           [=](int64_t i, const std::byte* row) { std::copy_n(row, bytes, to + i * bytes); });
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
    const std::byte* rows_of_dy = dy.raw();
    for_rows(dxs, order, bytes,
             [=](int64_t i, std::byte* row) { std::copy_n(rows_of_dy + i * bytes, bytes, row); });
    for (size_t i = 0; i < targets.size(); ++i) t.give(targets[i], dxs[i]);
  });
}

}  // namespace anabranch
