#include "parallel/flat_store.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/convert.h"

namespace anabranch {
namespace {

int64_t padded(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

int64_t room(const Param& w) { return padded(w.shape.count(), FlatStore::kAlign); }

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

// Offsets of the draft's parameters, and the elements of the bucket.
std::pair<std::vector<int64_t>, int64_t> place(const Draft& d, int ranks) {
  std::vector<int64_t> offsets(d.params.size());
  if (std::get<Owner>(d.kind) == Owner::kAdamw) {
    int64_t end = 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      offsets[i] = end;
      end += room(*d.params[i]);
    }
    return {offsets, padded(end, ranks * FlatStore::kAlign)};
  }
  // Largest first, each to the rank with the least so far.
  std::vector<size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return room(*d.params[a]) > room(*d.params[b]); });
  std::vector<int64_t> load(static_cast<size_t>(ranks), 0);
  std::vector<int64_t> owners(offsets.size());
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    owners[i] = least - load.begin();
    offsets[i] = *least;
    *least += room(*d.params[i]);
  }
  const int64_t segment = *std::max_element(load.begin(), load.end());
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += owners[i] * segment;
  return {offsets, segment * ranks};
}

}  // namespace

FlatStore::FlatStore(const std::vector<Param*>& params, const Options& options,
                     const std::shared_ptr<Pool>& pool) {
  std::unordered_set<const Param*> seen;
  std::unordered_set<std::string> names;
  for (const Param* w : params) {
    AB_CHECK(seen.insert(w).second, "parameter ", w->name, " is listed twice");
    AB_CHECK(names.insert(w->name).second, "two parameters are named ", w->name);
    AB_CHECK(w->owner == Owner::kAdamw || w->shape.rank() >= 2, "parameter ", w->name, " of shape ",
             w->shape, " has a matrix optimizer but is no matrix");
  }
  for (const Draft& d : draft(params, options)) {
    const auto& [reduce, compute, owner] = d.kind;
    const int ranks = reduce == ReduceGroup::kAll ? options.all_ranks : options.data_ranks;
    const auto [offsets, count] = place(d, ranks);
    for (size_t i = 0; i < offsets.size(); ++i) {
      entries_.push_back({d.params[i], static_cast<int>(buckets_.size()), offsets[i]});
    }
    buckets_.push_back({.reduce = reduce,
                        .compute = compute,
                        .owner = owner,
                        .ranks = ranks,
                        .count = count,
                        .master = {},
                        .grad = {},
                        .value = {},
                        .m = {},
                        .v = {}});
  }
  std::unordered_map<const Param*, size_t> place_of;
  for (size_t i = 0; i < params.size(); ++i) place_of[params[i]] = i;
  std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
    return place_of.at(a.param) < place_of.at(b.param);
  });
  bind(pool);
}

void FlatStore::bind(const std::shared_ptr<Pool>& pool) {
  for (Bucket& b : buckets_) {
    const auto zeros = [&](DType type, const char* tag) {
      Tensor t({b.count}, type, pool, tag);
      t.fill_zero();
      return t;
    };
    const DType wide = accumulator_of(b.compute);
    b.master = zeros(wide, "master weights");
    b.grad = zeros(wide, "gradients");
    b.value = b.compute == wide ? b.master : zeros(b.compute, "weights");
    b.m = zeros(wide, "moments");
    if (b.owner == Owner::kAdamw) b.v = zeros(wide, "moments");
  }
  for (const Entry& e : entries_) {
    const Bucket& b = buckets_[static_cast<size_t>(e.bucket)];
    Param& w = *e.param;
    w.value = b.value.view(e.offset, w.shape);
    w.master = b.master.view(e.offset, w.shape);
    w.grad = b.grad.view(e.offset, w.shape);
    w.fresh = true;
  }
}

std::vector<FlatStore::Entry> FlatStore::entries_of(int bucket) const {
  std::vector<Entry> all;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(all),
               [&](const Entry& e) { return e.bucket == bucket; });
  std::sort(all.begin(), all.end(),
            [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  return all;
}

FlatStore::Slice FlatStore::slice(int bucket, int rank) const {
  const Bucket& b = buckets_.at(static_cast<size_t>(bucket));
  AB_CHECK(0 <= rank && rank < b.ranks, "slice of rank ", rank, " of ", b.ranks);
  const int64_t count = b.count / b.ranks;
  return {count * rank, count};
}

Tensor FlatStore::m(const Entry& entry) const {
  return buckets_.at(static_cast<size_t>(entry.bucket)).m.view(entry.offset, entry.param->shape);
}

Tensor FlatStore::v(const Entry& entry) const {
  const Bucket& b = buckets_.at(static_cast<size_t>(entry.bucket));
  return b.v.empty() ? Tensor() : b.v.view(entry.offset, entry.param->shape);
}

void FlatStore::refresh_values() {
  for (Bucket& b : buckets_) {
    if (b.value.shares(b.master)) continue;
    AB_CHECK(b.compute == DType::kBF16, "no rounding from ", name_of(b.master.dtype()), " to ",
             name_of(b.compute));
    convert(b.value, b.master);
  }
}

void FlatStore::forget_grads() {
  for (const Entry& e : entries_) e.param->fresh = true;
}

int64_t FlatStore::parameter_count() const {
  return std::accumulate(entries_.begin(), entries_.end(), int64_t{0},
                         [](int64_t sum, const Entry& e) { return sum + e.param->shape.count(); });
}

}  // namespace anabranch
