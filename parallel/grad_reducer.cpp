#include "parallel/grad_reducer.h"

#include <utility>

#include "core/base/error.h"
#include "core/tensor/convert.h"
#include "parallel/lanes.h"

namespace anabranch {
namespace {

bool in_lanes(const Bucket& b) { return b.lanes.dim(0) > 1; }

}  // namespace

GradReducer::GradReducer(FlatStore& store, const Mesh& mesh, DType wire)
    : store_(store), mesh_(mesh), wire_(wire), flights_(store.buckets().size()) {
  AB_CHECK(wire == DType::kF32 || wire == DType::kBF16, "gradients cannot travel as ",
           name_of(wire));
  for (const Bucket& b : store.buckets()) {
    AB_CHECK(b.ranks == mesh.reduce(b.reduce).size(), "a bucket is laid out for ", b.ranks,
             " ranks but is reduced over ", mesh.reduce(b.reduce).size());
    const Slice own = b.slice(mesh.reduce(b.reduce).rank());
    AB_CHECK(own.begin == b.own.begin && own.count == b.own.count,
             "a bucket is laid out for a rank with elements ", b.own.begin, " to ",
             b.own.begin + b.own.count, " but rank ", mesh.reduce(b.reduce).rank(), " has ",
             own.begin, " to ", own.begin + own.count);
    AB_CHECK(!in_lanes(b) || wire == DType::kF32, "lanes of gradients cannot travel as ",
             name_of(wire));
  }
  for (size_t b = 0; b < flights_.size(); ++b) {
    order_[static_cast<size_t>(store.buckets()[b].reduce)].push_back(b);
  }
  ready_.resize(store.entries().size());
  for (size_t i = 0; i < ready_.size(); ++i) entry_[store.entries()[i].param] = i;
}

void GradReducer::arm() {
  AB_CHECK(!armed_, "arm() was called twice without finish()");
  armed_ = true;
  next_ = {};
  ready_.assign(ready_.size(), false);
  for (Flight& flight : flights_) flight = {};
  for (const FlatStore::Entry& e : store_.entries()) {
    ++flights_[static_cast<size_t>(e.bucket)].waiting;
  }
}

void GradReducer::ready(Param& w) {
  if (!armed_) return;
  const auto found = entry_.find(&w);
  AB_CHECK(found != entry_.end(), "parameter ", w.name, " is not in the store");
  AB_CHECK(!ready_[found->second], "the gradient of ", w.name, " became ready twice in one step");
  ready_[found->second] = true;
  settle(w);
  const int bucket = store_.entries()[found->second].bucket;
  --flights_[static_cast<size_t>(bucket)].waiting;
  start_ready(store_.buckets()[static_cast<size_t>(bucket)].reduce);
}

void GradReducer::start_ready(ReduceGroup reduce) {
  const auto& order = order_[static_cast<size_t>(reduce)];
  size_t& next = next_[static_cast<size_t>(reduce)];
  while (next < order.size() && flights_[order[next]].waiting == 0) start(order[next++]);
}

void GradReducer::finish() {
  AB_CHECK(armed_, "finish() without arm()");
  armed_ = false;
  finish_gather();
  for (const FlatStore::Entry& e : store_.entries()) settle(*e.param);
  for (Flight& flight : flights_) flight.waiting = 0;
  for (const ReduceGroup reduce : {ReduceGroup::kAll, ReduceGroup::kData}) start_ready(reduce);
  for (size_t b = 0; b < flights_.size(); ++b) {
    flights_[b].work.wait();
    land(b);
  }
}

ReduceTimes GradReducer::times() const {
  ReduceTimes times;
  for (const Flight& flight : flights_) {
    times.seconds += flight.work.seconds();
    times.waited += flight.work.held_up();
  }
  return times;
}

void GradReducer::gather(int bucket) {
  const Bucket& b = store_.buckets()[static_cast<size_t>(bucket)];
  if (!b.sharded()) return;
  arrivals_.push_back({b.value, mesh_.reduce(b.reduce).all_gather_parts(b.value, b.begins)});
  Arrival& arrival = arrivals_.back();
  arrival.value.expect([work = arrival.work] { work.wait(); });
}

void GradReducer::finish_gather() {
  for (Arrival& arrival : std::exchange(arrivals_, {})) {
    arrival.work.wait();
    arrival.value.expect(nullptr);
  }
}

// A gradient that no backward wrote is zero.
void GradReducer::settle(Param& w) {
  if (std::exchange(w.fresh, false)) w.grad.fill_zero();
  for (GradLane& lane : w.lanes) {
    if (std::exchange(lane.fresh, false)) lane.grad.fill_zero();
  }
}

void GradReducer::start(size_t bucket) {
  const Bucket& b = store_.buckets()[bucket];
  Flight& flight = flights_[bucket];
  Group& group = mesh_.reduce(b.reduce);
  if (in_lanes(b)) {
    flight.work = group.all_reduce_sum(b.lanes);
    return;
  }
  flight.wire = b.grad;
  if (wire_ == DType::kBF16 && b.grad.dtype() == DType::kF32 && group.size() > 1) {
    flight.wire = b.grad.like(b.grad.shape(), DType::kBF16, "gradients on the wire");
    convert(flight.wire, b.grad);
  }
  flight.work = b.sharded() ? group.reduce_scatter_parts_sum(flight.wire, b.begins)
                            : group.all_reduce_sum(flight.wire);
}

void GradReducer::land(size_t bucket) {
  const Bucket& b = store_.buckets()[bucket];
  if (in_lanes(b)) return add_lanes(b.lanes);
  const Tensor wire = std::exchange(flights_[bucket].wire, {});
  if (wire.dtype() == b.grad.dtype()) return;
  Tensor own = b.grad.view(b.own.begin, {b.own.count});
  convert(own, wire.view(b.own.begin, {b.own.count}));
}

}  // namespace anabranch
