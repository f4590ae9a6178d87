#include "parallel/exchange.h"

#include <numeric>
#include <utility>

#include "core/ops/rows.h"

namespace anabranch {
namespace {

int64_t sum(const std::vector<int64_t>& all) {
  return std::accumulate(all.begin(), all.end(), int64_t{0});
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

}  // namespace anabranch
