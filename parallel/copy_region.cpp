#include "parallel/copy_region.h"

#include "core/base/error.h"
#include "core/tensor/convert.h"
#include "parallel/exchange.h"

namespace anabranch {
namespace {

// to <- the blocks of `from`, which come by an outer and an inner index, with these swapped.
void swap_blocks(const Tensor& to, const Tensor& from, int64_t outer, int64_t inner) {
  const int64_t size = from.count() / (outer * inner);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      Tensor block = to.view((i * outer + o) * size, {size});
      block.copy_from(from.view((o * inner + i) * size, {size}));
    }
  }
}

// Rows by copy, then by rank, as rows by rank, then by copy. Keeps nothing.
Var by_rank(const Var& x, int64_t copies, int64_t ranks) {
  if (copies == 1) return x;
  const Tensor y = x.value().like("copies by rank");
  swap_blocks(y, x.value(), copies, ranks);
  if (x.tape() == nullptr) return y;
  const Var to({}, x.tape(), x.id());
  return x.tape()->record("by_rank", y, {}, [to, copies, ranks](Tape& t, const Tensor& dy) {
    const Tensor dx = dy.like("gradient");
    swap_blocks(dx, dy, ranks, copies);
    t.give(to, dx);
  });
}

// x for a reader that makes a gradient of x's type, where the sum of all readers' is wider.
Var for_reader(const Var& x) {
  const DType wide = accumulator_of(x.dtype());
  if (x.tape() == nullptr || wide == x.dtype()) return x;
  const Var to({}, x.tape(), x.id());
  return x.tape()->record("copy", x.value(), {}, [to, wide](Tape& t, const Tensor& dy) {
    t.give(to, converted(dy, wide, "gradient"));
  });
}

}  // namespace

CopyRegion::CopyRegion(const Regions& regions, int64_t copies)
    : group_(regions.model_size() > 1 ? regions.model : nullptr),
      copies_{copies, regions.model_size()} {
  AB_CHECK(copies >= copies_.ranks, copies, " copies for ", copies_.ranks, " ranks");
  AB_CHECK(alone() || !regions.any_layout, "a run of any layout has its ", copies,
           " copies on one rank, but got ", copies_.ranks);
}

void CopyRegion::own(Param& w) const {
  if (!alone()) w.reduce = ReduceGroup::kData;
}

Tensor CopyRegion::rows_of_all(const Tensor& x) const {
  return alone() || x.empty() ? x : anabranch::rows_of_all(x, *group_);
}

std::vector<Var> CopyRegion::spread(const Var& x) const {
  const auto n = static_cast<size_t>(count());
  if (alone()) return std::vector<Var>(n, x);
  const Var all = share_rows_finish(share_rows_start(x, *group_, PartialGrad::kWide));
  std::vector<Var> copies;
  copies.reserve(n);
  for (size_t i = 0; i < n; ++i) copies.push_back(for_reader(all));
  return copies;
}

Var CopyRegion::come_home(const Var& h) const {
  if (alone()) return h;
  const int ranks = group_->size();
  AB_CHECK(h.dim(0) % (count() * ranks) == 0, "rows of ", count(), " copies of ", ranks,
           " ranks are ", h.shape());
  const int64_t rows = h.dim(0) / (count() * ranks);
  RowCounts counts;
  for (int r = 0; r < ranks; ++r) {
    counts.out.push_back(count() * rows);
    counts.in.push_back(copies_.count(r) * rows);
  }
  return exchange_rows_finish(exchange_rows_start(by_rank(h, count(), ranks), counts, group_));
}

}  // namespace anabranch
