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
  for (size_t i = params.size(); i-- > 0;) {
    Param& w = *params[i];
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

// The offsets of parameters in a bucket, its elements, and where the ranks' slices begin.
struct Placement {
  std::vector<int64_t> offsets, begins;
  int64_t count = 0;
};

Placement place_in_order(const Draft& d, int ranks) {
  Placement p;
  for (const Param* w : d.params) {
    p.offsets.push_back(p.count);
    p.count += room(*w);
  }
  p.count = padded(p.count, ranks * FlatStore::kAlign);
  for (int r = 0; r <= ranks; ++r) p.begins.push_back(p.count / ranks * r);
  return p;
}

// Deals matrices to ranks, the costliest first, each to the rank whose own of this and earlier
// buckets cost least.
Placement place_by_cost(const Draft& d, int ranks, std::vector<double>& costs) {
  costs.resize(static_cast<size_t>(ranks));
  std::vector<size_t> order(d.params.size()), owners(d.params.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return cost_of(*d.params[a]) > cost_of(*d.params[b]);
  });
  Placement p;
  p.offsets.resize(order.size());
  std::vector<int64_t> load(costs.size(), 0);
  for (const size_t i : order) {
    const size_t rank = static_cast<size_t>(std::ranges::min_element(costs) - costs.begin());
    owners[i] = rank;
    costs[rank] += cost_of(*d.params[i]);
    p.offsets[i] = load[rank];
    load[rank] += room(*d.params[i]);
  }
  p.begins.push_back(0);
  for (const int64_t elements : load) p.begins.push_back(p.begins.back() + elements);
  p.count = p.begins.back();
  for (size_t i = 0; i < owners.size(); ++i) p.offsets[i] += p.begins[owners[i]];
  return p;
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

}  // namespace

Slice Bucket::slice(int rank) const {
  AB_CHECK(0 <= rank && rank < ranks, "slice of rank ", rank, " of ", ranks);
  if (!sharded()) return {0, count};
  const auto begin = begins.begin() + rank;
  return {begin[0], begin[1] - begin[0]};
}

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
    const bool sharded = options.zero && ranks > 1;
    const bool deals = sharded && owner == Owner::kMatrix;
    const Placement place =
        deals ? place_by_cost(d, ranks, costs[reduce]) : place_in_order(d, ranks);
    Bucket b{.reduce = reduce,
             .compute = compute,
             .owner = owner,
             .ranks = ranks,
             .count = place.count,
             .begins = sharded ? place.begins : std::vector<int64_t>(),
             .own = {},
             .value = {},
             .lanes = {},
             .grad = {},
             .master = {},
             .m = {},
             .v = {}};
    b.own = b.slice(all ? options.all_rank : options.data_rank);
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
