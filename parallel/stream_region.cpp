#include "parallel/stream_region.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/ops/columns.h"
#include "core/ops/permute_rows.h"
#include "core/ops/rows.h"
#include "parallel/division.h"

namespace anabranch {
namespace {

// A chunk of fewer rows would not keep the products at full speed, and with more chunks the first
// and the last, whose transfers nothing hides, are small enough.
constexpr int64_t kLeastRows = 256, kMostChunks = 4;

}  // namespace

int64_t chunk_count(int64_t rows) { return std::clamp<int64_t>(rows / kLeastRows, 1, kMostChunks); }

int64_t chunk_rows(int64_t rows) {
  const int64_t chunks = chunk_count(rows);
  return std::max<int64_t>((rows + chunks - 1) / chunks, 1);
}

Var through(Group& group, const std::vector<Var>& xs, int64_t chunk, DType type,
            const std::function<Var(const std::vector<Var>&)>& body) {
  std::vector<std::vector<Var>> pieces;
  pieces.reserve(xs.size());
  for (const Var& x : xs) pieces.push_back(split_rows(x, chunk));
  const auto enter = [&](size_t c) {
    std::vector<Pending> entering;
    entering.reserve(pieces.size());
    for (const auto& piece : pieces) {
      entering.push_back(share_rows_start(piece[c], group, PartialGrad::kWide));
    }
    return entering;
  };
  const size_t chunks = pieces.front().size();
  const int64_t rows = xs.front().dim(0);
  Tensor y;
  std::vector<Var> home;
  std::vector<Pending> entering = enter(0), next;
  Pending leaving;
  for (size_t c = 0; c < chunks; ++c) {
    if (c + 1 < chunks) next = enter(c + 1);
    std::vector<Var> entered;
    entered.reserve(entering.size());
    for (const Pending& pending : entering) entered.push_back(share_rows_finish(pending));
    const Var part = body(entered);
    if (c == 0) y = part.value().like(with_rows(part.shape(), rows), type, "region");
    const auto first = static_cast<int64_t>(c) * chunk;
    const Pending sums =
        sum_rows_start(part, group, rows_of(y, first, std::min(chunk, rows - first)));
    if (c > 0) home.push_back(sum_rows_finish(leaving));
    leaving = sums;
    entering = std::exchange(next, {});
  }
  home.push_back(sum_rows_finish(leaving));
  return chunks == 1 ? home.front() : join_rows(y, home);
}

Var through_apart(const Regions& regions, const std::vector<Var>& xs, DType type,
                  const std::function<Var(const std::vector<Var>&)>& body) {
  Group& group = *regions.model;
  const int64_t rows = xs.front().dim(0);
  std::vector<std::vector<Var>> entered;  // by x, those of each rank
  entered.reserve(xs.size());
  for (const Var& x : xs) {
    const Pending pending = share_rows_start(x, group, PartialGrad::kWide);
    entered.push_back(split_rows(share_rows_finish(pending), rows));
  }
  std::vector<Var> parts;
  regions.for_sources(xs.front().tape(), [&](int source) {
    std::vector<Var> of_source;
    of_source.reserve(entered.size());
    for (const auto& all : entered) of_source.push_back(all[static_cast<size_t>(source)]);
    parts.push_back(body(of_source));
  });
  const Tensor& part = parts.front().value();
  Tensor order({group.size() * rows}, DType::kI32);
  std::iota(order.data<int32_t>(), order.data<int32_t>() + order.count(), 0);
  const Tensor y = part.like(with_rows(part.shape(), rows), type, "region");
  return sum_rows_finish(sum_rows_start(permute_rows(parts, order), group, y));
}

StreamRegion::StreamRegion(const Regions& regions)
    : regions_(regions), group_(regions.model_size() > 1 ? regions.model : nullptr) {}

void StreamRegion::split(Param& w, int axis) const { split_over(group_, w, axis); }

Var StreamRegion::sum(const Var& s, const Var& g, DType type,
                      const std::function<Var(const Var& s, const Var& g)>& body) const {
  if (alone()) return body(s, g);
  const Division streams{g.dim(1), group_->size()};
  const auto with_mine = [&](const std::vector<Var>& all) {
    if (slices()) return body(all[0], all[1]);
    return body(all[0], take_columns(all[1], streams.begin(group_->rank()), mine(g.dim(1))));
  };
  if (regions_.any_layout) return through_apart(regions_, {s, g}, type, with_mine);
  return through(*group_, {s, g}, chunk_rows(s.dim(0)), type, with_mine);
}

int64_t StreamRegion::mine(int64_t parts) const {
  return Division{parts, group_->size()}.count(group_->rank());
}

std::vector<int64_t> StreamRegion::shares(int64_t parts, int64_t times) const {
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(group_->size()));
  for (int r = 0; r < group_->size(); ++r) {
    all.push_back(Division{parts, group_->size()}.count(r) * times);
  }
  return all;
}

Tensor StreamRegion::rows_of_all(const Tensor& x) const {
  return alone() ? x : anabranch::rows_of_all(x, *group_);
}

std::vector<Tensor> StreamRegion::come_home(const Tensor& made, const Shape& whole) const {
  const int64_t N = whole[0], F = whole[1], rows = made.dim(3);
  if (alone()) return {made.reshape({N, F, rows})};
  const int64_t each = made.dim(1) * made.dim(2);
  const std::vector<int64_t> send(static_cast<size_t>(group_->size()), each);
  const std::vector<int64_t> receive = slices() ? shares(F, N) : shares(N, F);
  const Tensor home = made.like({N * F, rows}, made.dtype(), "region");
  group_->all_to_all(home, made.reshape({group_->size() * each, rows}), send, receive).wait();
  if (!slices()) return {home.reshape({N, F, rows})};
  std::vector<Tensor> pieces;
  int64_t at = 0;
  for (const int64_t there : receive) {
    pieces.push_back(home.view(at * rows, {N, there / N, rows}));
    at += there;
  }
  return pieces;
}

Tensor StreamRegion::slices_of(const Tensor& kernels, const Shape& whole) const {
  if (alone() || slices()) return kernels;
  const int64_t N = whole[0], F = whole[1], C = whole[2], n = kernels.dim(0);
  const Division slices{F, group_->size()};
  const Tensor packed = kernels.like({n * F, C}, kernels.dtype(), "region");
  int64_t at = 0;
  for (int r = 0; r < group_->size(); ++r) {
    for (int64_t k = 0; k < n; ++k, at += slices.count(r)) {
      const Shape shape{slices.count(r), C};
      Tensor to = packed.view(at * C, shape);
      to.copy_from(kernels.view((k * F + slices.begin(r)) * C, shape));
    }
  }
  Tensor slice = kernels.like({N, mine(F), C}, kernels.dtype(), "region");
  group_->all_to_all(slice.reshape({N * mine(F), C}), packed, shares(F, n), shares(N, mine(F)))
      .wait();
  return slice;
}

void StreamRegion::add_up(Tensor& x) const {
  if (!alone()) group_->all_reduce_sum(x).wait();
}

}  // namespace anabranch
