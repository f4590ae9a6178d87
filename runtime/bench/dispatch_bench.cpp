#include "runtime/bench/dispatch_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/parallel_for.h"
#include "core/ops/combine_rows.h"
#include "core/ops/top_k_route.h"
#include "parallel/dispatch.h"
#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

// A rank's seconds of one side, whole and by stage.
class Laps {
 public:
  // Stages run in one order every time.
  void begin() { at_ = 0, whole_ = last_ = Stopwatch(); }

  void lap(const char* name) {
    if (at_ == stages_.size()) stages_.emplace_back(name, std::vector<double>());
    stages_[at_++].second.push_back(last_.seconds());
    last_ = Stopwatch();
  }

  void end() { seconds_.push_back(whole_.seconds()); }

  void forget() { *this = {}; }

  // Collective.
  [[nodiscard]] DispatchBench::Side side(Group& world) const {
    DispatchBench::Side side;
    side.seconds = slowest(world, seconds_);
    for (const auto& [name, seconds] : stages_) side.stages.push_back({name, median(seconds)});
    return side;
  }

 private:
  Stopwatch whole_, last_;
  size_t at_ = 0;
  std::vector<double> seconds_;
  std::vector<std::pair<std::string, std::vector<double>>> stages_;
};

class Dispatching {
 public:
  Dispatching(Group& world, const std::shared_ptr<Pool>& pool, const DispatchBenchOptions& o)
      : regions_{.model = &world},
        experts_(o.experts),
        x_(random_values({o.rows, o.width}, o.type, pool)),
        route_(top_k_route(random_values({o.rows, o.experts}, accumulator_of(o.type), pool),
                           {.k = o.top_k})) {
    const Dispatched at =
        dispatch_finish(dispatch_start(x_, dispatch_counts(route_.plan, experts_, regions_)));
    travelled_ = at.route;
    z_ = random_values({at.plan.source.count(), o.width}, o.type, pool);
  }

  void run(Laps& laps) {
    const PendingDispatch going =
        dispatch_start(x_, dispatch_counts(route_.plan, experts_, regions_));
    laps.lap("counts, pack");
    const Dispatched at = dispatch_finish(going);
    laps.lap("transfer, sort");
    const PendingExchange home = return_slots_start(std::span(&z_, 1), at);
    laps.lap("pack home");
    const Var slots = return_slots_finish(home);
    laps.lap("transfer home");
    static_cast<void>(combine_rows(slots, route_.gates, going.plan));
    laps.lap("combine");
  }

  [[nodiscard]] const SlotRoute& travelled() const { return *travelled_; }

 private:
  Regions regions_;
  int64_t experts_;
  Var x_, z_;
  TopKRoute route_;
  std::shared_ptr<const SlotRoute> travelled_;
};

class Plain {
 public:
  Plain(Group& world, const std::shared_ptr<Pool>& pool, const SlotRoute& route,
        const DispatchBenchOptions& o)
      : world_(world), rows_(route.rows), slots_(route.slots) {
    for (Tensor* t : {&x_, &packed_}) *t = random_values({rows_.sent(), o.width}, o.type, pool);
    arrived_ = random_values({rows_.received(), o.width}, o.type, pool);
    made_ = random_values({slots_.received(), o.width}, o.type, pool);
    for (Tensor* t : {&home_, &y_}) *t = random_values({slots_.sent(), o.width}, o.type, pool);
  }

  void run(Laps& laps) {
    copy(packed_, x_);
    laps.lap("copy");
    world_.all_to_all(arrived_, packed_, rows_.out, rows_.in).wait();
    laps.lap("transfer");
    world_.all_to_all(home_, made_, slots_.in, slots_.out).wait();
    laps.lap("transfer home");
    copy(y_, home_);
    laps.lap("copy home");
  }

  [[nodiscard]] int64_t bytes_out() const { return static_cast<int64_t>(packed_.bytes()); }

  [[nodiscard]] int64_t bytes_home() const { return static_cast<int64_t>(made_.bytes()); }

 private:
  static void copy(Tensor& to, const Tensor& from) {
    constexpr int64_t kGrain = 1 << 16;  // bytes
    std::byte* into = to.raw();
    const std::byte* out = from.raw();
    parallel_for(static_cast<int64_t>(from.bytes()), kGrain, [=](int64_t begin, int64_t end) {
      std::copy_n(out + begin, end - begin, into + begin);
    });
  }

  Group& world_;
  RowCounts rows_, slots_;
  Tensor x_, packed_, arrived_, made_, home_, y_;
};

}  // namespace

DispatchBench bench_dispatch(Group& world, const RankContext& context,
                             const DispatchBenchOptions& options) {
  AB_CHECK(world.size() > 1 && options.experts >= world.size() && options.top_k <= options.experts,
           "top-", options.top_k, " of ", options.experts, " experts over ", world.size(),
           " ranks");
  Dispatching dispatching(world, context.pool, options);
  Plain plain(world, context.pool, dispatching.travelled(), options);
  Laps ours, bare;
  const auto time = [&](auto& side, Laps& laps, int64_t round) {
    world.barrier();
    laps.begin();
    side.run(laps);
    laps.end();
    if (round < 0) laps.forget();
  };
  take_turns(
      options.pairs,
      [&](int64_t round) {
        time(dispatching, ours, round);
        if (round > 0 && options.on_pair) options.on_pair(round);
      },
      [&](int64_t round) { time(plain, bare, round); });
  DispatchBench result;
  result.dispatch = ours.side(world);
  result.plain = bare.side(world);
  result.ratio = paired_ratio(result.dispatch.seconds, result.plain.seconds);
  result.bytes_out = plain.bytes_out();
  result.bytes_home = plain.bytes_home();
  return result;
}

}  // namespace anabranch
