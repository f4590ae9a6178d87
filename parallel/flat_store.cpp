#include "parallel/flat_store.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/convert.h"

namespace anabranch {
namespace {

int64_t padded(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

// Of the largest part, so that all ranks close the same buckets whatever they hold of split ones.
int64_t room(const Param& w) {
  int64_t count = w.global_shape.count();
  if (w.parts > 1) {
    const int64_t whole = w.global_shape[w.split_axis];
    count = count / whole * ((whole + w.parts - 1) / w.parts);
  }
  return padded(count, FlatStore::kAlign);
}

using Kind = std::tuple<ReduceGroup, DType, Owner>;

Kind kind_of(const Param& w) { return {w.reduce, w.compute, w.owner}; }

// Parameters that will share a bucket, in reverse forward order.
struct Draft {
  Kind kind;
  std::vector<Param*> params;
  int64_t bytes = 0;  // of gradient
};

bool full(const Draft& draft, const FlatStore::Options& options) {
  if (draft.bytes < options.bucket_bytes) return false;
  const auto& [reduce, compute, owner] = draft.kind;
  const int ranks = reduce == ReduceGroup::kAll ? options.all_ranks : options.data_ranks;
  return owner == Owner::kAdamw || std::ssize(draft.params) >= ranks;  // else some own nothing
}

// Drafts in the order in which their last parameter's gradient is done.
std::vector<Draft> draft(const std::vector<Param*>& params, const FlatStore::Options& options) {
  std::vector<Draft> open, closed;
  for (auto it = params.rbegin(); it != params.rend(); ++it) {
    Param& w = **it;
    auto at = std::find_if(open.begin(), open.end(),
                           [&](const Draft& d) { return d.kind == kind_of(w); });
    if (at == open.end()) at = open.insert(at, {kind_of(w), {}, 0});
    at->params.push_back(&w);
    at->bytes += room(w) * size_of(accumulator_of(w.compute));
    if (full(*at, options)) {
      closed.push_back(std::move(*at));
      open.erase(at);
    }
  }
  const auto position = [&](const Draft& d) {
    return std::find(params.begin(), params.end(), d.params.back()) - params.begin();
  };
  std::sort(open.begin(), open.end(),
            [&](const Draft& a, const Draft& b) { return position(a) > position(b); });
  std::move(open.begin(), open.end(), std::back_inserter(closed));
  return closed;
}

// What a matrix optimizer's products on a parameter cost, up to a factor.
double cost_of(const Param& w) {
  const int64_t columns = w.shape[-1], rows = w.shape.count() / (columns * w.matrices);
  return static_cast<double>(w.shape.count()) * static_cast<double>(std::min(rows, columns));
}

// The offsets of parameters in a bucket, and its elements.
struct Placement {
  std::vector<int64_t> offsets;
  int64_t count = 0;
};

Placement place_slices(const Draft& d, int ranks) {
  Placement p;
  for (const Param* w : d.params) {
    p.offsets.push_back(p.count);
    p.count += room(*w);
  }
  p.count = padded(p.count, ranks * FlatStore::kAlign);
  return p;
}

// Deals matrices to the ranks' segments, the largest first; `choose` names the rank of the next,
// given each one's elements so far.
template <class Choose>
Placement place_matrices(const Draft& d, int ranks, const Choose& choose) {
  std::vector<size_t> order(d.params.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return room(*d.params[a]) > room(*d.params[b]); });
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  std::vector<size_t> owners(order.size());
  Placement p;
  p.offsets.resize(order.size());
  for (const size_t i : order) {
    owners[i] = choose(*d.params[i], load);
    p.offsets[i] = load[owners[i]];
    load[owners[i]] += room(*d.params[i]);
  }
  const int64_t segment = *std::max_element(load.begin(), load.end());
  for (size_t i = 0; i < owners.size(); ++i) {
    p.offsets[i] += static_cast<int64_t>(owners[i]) * segment;
  }
  p.count = segment * ranks;
  return p;
}

size_t least_of(const std::vector<int64_t>& load) {
  return static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
}

Placement place_by_size(const Draft& d, int ranks) {
  return place_matrices(d, ranks, [](const Param&, const auto& load) { return least_of(load); });
}

// In segments that are no longer than those of place_by_size, as far as that goes, each to the rank
// whose matrices of this and earlier buckets cost least.
Placement place_by_cost(const Draft& d, int ranks, std::vector<double>& costs) {
  costs.resize(static_cast<size_t>(ranks));
  const int64_t segment = place_by_size(d, ranks).count / ranks;
  return place_matrices(d, ranks, [&](const Param& w, const std::vector<int64_t>& load) {
    size_t best = least_of(load);
    for (size_t r = 0; r < load.size(); ++r) {
      if (load[r] + room(w) <= segment && costs[r] < costs[best]) best = r;
    }
    costs[best] += cost_of(w);
    return best;
  });
}

// The part of [begin, begin + count) that lies in `slice`, counted from `begin`.
Slice common(int64_t begin, int64_t count, const Slice& slice) {
  const int64_t first = std::max(begin, slice.begin);
  const int64_t end = std::min(begin + count, slice.begin + slice.count);
  return first < end ? Slice{first - begin, end - first} : Slice{};
}

void check(const std::vector<Param*>& params) {
  std::unordered_set<const Param*> seen;
  std::unordered_set<std::string> names;
  for (const Param* w : params) {
    AB_CHECK(seen.insert(w).second, "parameter ", w->name, " is listed twice");
    AB_CHECK(names.insert(w->name).second, "two parameters are named ", w->name);
    if (w->owner == Owner::kAdamw) continue;
    AB_CHECK(w->shape.rank() >= 2, "parameter ", w->name, " of shape ", w->shape,
             " has a matrix optimizer but is no matrix");
    AB_CHECK(w->parts == 1 || w->split_axis == 0, "parameter ", w->name, " of shape ",
             w->global_shape, " has a matrix optimizer but is split along axis ", w->split_axis,
             ", inside its matrices");
  }
}

Slice slice_of(const Bucket& b, int rank) {
  AB_CHECK(0 <= rank && rank < b.ranks, "slice of rank ", rank, " of ", b.ranks);
  const int64_t count = b.count / b.ranks;
  return {count * rank, count};
}

}  // namespace

FlatStore::FlatStore(const std::vector<Param*>& params, const Options& options,
                     const std::shared_ptr<Pool>& pool)
    : FlatStore(params, options) {
  bind(pool);
}

FlatStore::FlatStore(const std::vector<Param*>& params, const Options& options)
    : lanes_(options.lanes) {
  check(params);
  std::map<ReduceGroup, std::vector<double>> costs;  // of the matrices of each rank
  for (const Draft& d : draft(params, options)) {
    const auto& [reduce, compute, owner] = d.kind;
    const bool all = reduce == ReduceGroup::kAll;
    const int ranks = all ? options.all_ranks : options.data_ranks;
    const Placement place = owner == Owner::kAdamw ? place_slices(d, ranks)
                            : options.zero         ? place_by_cost(d, ranks, costs[reduce])
                                                   : place_by_size(d, ranks);
    Bucket b{.reduce = reduce,
             .compute = compute,
             .owner = owner,
             .ranks = ranks,
             .count = place.count,
             .own = {0, place.count},
             .value = {},
             .lanes = {},
             .grad = {},
             .master = {},
             .m = {},
             .v = {}};
    if (options.zero) b.own = slice_of(b, all ? options.all_rank : options.data_rank);
    for (size_t i = 0; i < d.params.size(); ++i) {
      Param* w = d.params[i];
      const int64_t offset = place.offsets[i];
      entries_.push_back(
          {w, static_cast<int>(buckets_.size()), offset, common(offset, w->shape.count(), b.own)});
    }
    buckets_.push_back(std::move(b));
  }
  std::unordered_map<const Param*, size_t> place_of;
  for (size_t i = 0; i < params.size(); ++i) place_of[params[i]] = i;
  std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
    return place_of.at(a.param) < place_of.at(b.param);
  });
}

std::vector<Bucket> FlatStore::plan(const std::vector<Param*>& params, const Options& options) {
  return FlatStore(params, options).buckets_;
}

void FlatStore::bind(const std::shared_ptr<Pool>& pool) {
  for (Bucket& b : buckets_) {
    const auto zeros = [&](int64_t count, DType type, const char* tag) {
      Tensor t({count}, type, pool, tag);
      t.fill_zero();
      return t;
    };
    const DType wide = accumulator_of(b.compute);
    const bool same = b.compute == wide;
    b.value = zeros(b.count, b.compute, same ? "master weights" : "weights");
    b.master = same ? b.value.view(b.own.begin, {b.own.count})
                    : zeros(b.own.count, wide, "master weights");
    b.lanes = zeros(lanes_ * b.count, wide, "gradients").reshape({lanes_, b.count});
    b.grad = b.lanes.view(0, {b.count});
    b.m = zeros(b.own.count, wide, "moments");
    if (b.owner == Owner::kAdamw) b.v = zeros(b.own.count, wide, "moments");
  }
  for (const Entry& e : entries_) {
    const Bucket& b = buckets_[static_cast<size_t>(e.bucket)];
    Param& w = *e.param;
    w.value = b.value.view(e.offset, w.shape);
    w.master = owned(e, b, b.master);
    w.master_begin = e.own.begin;
    w.grad = b.grad.view(e.offset, w.shape);
    w.fresh = true;
    w.lanes.clear();
    for (int64_t lane = 1; lane < lanes_; ++lane) {
      w.lanes.push_back({b.lanes.view(lane * b.count + e.offset, w.shape)});
    }
  }
}

Tensor FlatStore::owned(const Entry& entry, const Bucket& bucket, const Tensor& flat) {
  const Shape& shape = entry.param->shape;
  if (entry.own.count == 0 && shape.count() > 0) return flat.view(0, {0});
  const int64_t begin = entry.offset + entry.own.begin - bucket.own.begin;
  return flat.view(begin, entry.own.count == shape.count() ? shape : Shape{entry.own.count});
}

std::vector<FlatStore::Entry> FlatStore::entries_of(int bucket) const {
  std::vector<Entry> all;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(all),
               [&](const Entry& e) { return e.bucket == bucket; });
  std::sort(all.begin(), all.end(),
            [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  return all;
}

Slice FlatStore::slice(int bucket, int rank) const {
  return slice_of(buckets_.at(static_cast<size_t>(bucket)), rank);
}

Tensor FlatStore::m(const Entry& entry) const {
  const Bucket& b = buckets_.at(static_cast<size_t>(entry.bucket));
  return owned(entry, b, b.m);
}

Tensor FlatStore::v(const Entry& entry) const {
  const Bucket& b = buckets_.at(static_cast<size_t>(entry.bucket));
  return b.v.empty() ? Tensor() : owned(entry, b, b.v);
}

void FlatStore::refresh_values() {
  for (Bucket& b : buckets_) {
    if (b.value.shares(b.master)) continue;
    AB_CHECK(b.compute == DType::kBF16, "no rounding from ", name_of(b.master.dtype()), " to ",
             name_of(b.compute));
    Tensor own = b.value.view(b.own.begin, {b.own.count});
    convert(own, b.master);
  }
}

void FlatStore::forget_grads() {
  for (const Entry& e : entries_) {
    e.param->fresh = true;
    for (GradLane& lane : e.param->lanes) lane.fresh = true;
  }
}

int64_t FlatStore::parameter_count() const {
  return std::accumulate(entries_.begin(), entries_.end(), int64_t{0},
                         [](int64_t sum, const Entry& e) { return sum + e.param->shape.count(); });
}

}  // namespace anabranch
