#include "parallel/grad_reducer.h"

#include <chrono>
#include <utility>

#include "core/base/build.h"
#include "core/base/error.h"
#include "core/base/parallel_for.h"

namespace anabranch {
namespace {

constexpr int64_t kGrain = 1 << 16;

AB_CLONES void round_to_wire(Bf16* to, const float* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = Bf16(from[i]);
}

AB_CLONES void widen(float* to, const Bf16* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

GradReducer::GradReducer(FlatStore& store, const Mesh& mesh, DType wire)
    : store_(store), mesh_(mesh), wire_(wire), flights_(store.buckets().size()) {
  AB_CHECK(wire == DType::kF32 || wire == DType::kBF16, "gradients cannot travel as ",
           name_of(wire));
  for (const Bucket& b : store.buckets()) {
    AB_CHECK(b.ranks == mesh.reduce(b.reduce).size(), "a bucket is laid out for ", b.ranks,
             " ranks but is reduced over ", mesh.reduce(b.reduce).size());
  }
  ready_.resize(store.entries().size());
  for (size_t i = 0; i < ready_.size(); ++i) entry_[store.entries()[i].param] = i;
}

void GradReducer::arm() {
  AB_CHECK(!armed_, "arm() was called twice without finish()");
  armed_ = true;
  next_ = 0;
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
  while (next_ < std::ssize(flights_) && flights_[static_cast<size_t>(next_)].waiting == 0) {
    start(static_cast<size_t>(next_++));
  }
}

void GradReducer::finish() {
  AB_CHECK(armed_, "finish() without arm()");
  armed_ = false;
  for (const FlatStore::Entry& e : store_.entries()) settle(*e.param);
  while (next_ < std::ssize(flights_)) start(static_cast<size_t>(next_++));
  times_ = {};
  using Clock = std::chrono::steady_clock;
  for (size_t b = 0; b < flights_.size(); ++b) {
    const auto begin = Clock::now();
    flights_[b].work.wait();
    times_.waited += std::chrono::duration<double>(Clock::now() - begin).count();
    times_.seconds += flights_[b].work.seconds();
    land(b);
  }
}

// A gradient that no backward wrote is zero.
void GradReducer::settle(Param& w) {
  if (std::exchange(w.fresh, false)) w.grad.fill_zero();
}

void GradReducer::start(size_t bucket) {
  const Bucket& b = store_.buckets()[bucket];
  Flight& flight = flights_[bucket];
  Group& group = mesh_.reduce(b.reduce);
  flight.wire = b.grad;
  if (wire_ == DType::kBF16 && b.grad.dtype() == DType::kF32 && group.size() > 1) {
    flight.wire = b.grad.like(b.grad.shape(), DType::kBF16, "gradients on the wire");
    const float* from = b.grad.data<float>();
    Bf16* to = flight.wire.data<Bf16>();
    parallel_for(b.count, kGrain, [&](int64_t begin, int64_t end) {
      round_to_wire(to + begin, from + begin, end - begin);
    });
  }
  flight.work = group.all_reduce_sum(flight.wire);
}

void GradReducer::land(size_t bucket) {
  Tensor grad = store_.buckets()[bucket].grad;
  const Tensor wire = std::exchange(flights_[bucket].wire, {});
  if (wire.dtype() == grad.dtype()) return;
  const Bf16* from = wire.data<Bf16>();
  float* to = grad.data<float>();
  parallel_for(grad.count(), kGrain,
               [&](int64_t begin, int64_t end) { widen(to + begin, from + begin, end - begin); });
}

}  // namespace anabranch
