#include "runtime/bench/stream_bench.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/nn/init.h"
#include "core/ops/columns.h"
#include "core/ops/gelu.h"
#include "core/ops/linear.h"
#include "core/ops/stream_linear.h"
#include "parallel/division.h"
#include "parallel/stream_region.h"
#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

constexpr int64_t kLeastRows = 16, kMostChunks = 64;
constexpr float kStdDev = 0.02F;

// A rank's part of the streams of a layer.
class Streams {
 public:
  Streams(Group& world, const RankContext& context, const StreamBenchOptions& o)
      : world_(world), slices_(o.layout == StreamLayout::kSlice), type_(o.type) {
    const int64_t F = o.hidden > 0 ? o.hidden : 4 * o.width;
    const Division dealt{slices_ ? F : o.streams, world.size()};
    first_ = dealt.begin(world.rank());
    const int64_t mine = dealt.count(world.rank());
    const Shape kernels = slices_ ? Shape{o.streams, mine, o.width} : Shape{mine, F, o.width};
    kernels_ = make(kernels, context.pool);
    bias_ = make({kernels[0], kernels[1]}, context.pool, true);
    if (slices_) down_ = make({o.width, mine}, context.pool);
    s_ = random_values({o.rows, o.width}, type_, context.pool);
    gates_ = random_values({o.rows, o.streams}, accumulator_of(type_), context.pool);
    const DType sums = slices_ ? accumulator_of(type_) : type_;
    dy_ = random_values({o.rows, slices_ ? o.width : F}, sums, context.pool);
  }

  struct Seconds {
    double forward, backward, communication, waited;
  };

  Seconds run(int64_t chunk) {
    world_.barrier();
    const CommStats before = world_.stats();
    const Stopwatch watch;
    Tape tape;
    const std::vector<Var> xs{tape.input(s_), tape.input(gates_)};
    const Var y = through(world_, xs, chunk, dy_.dtype(),
                          [this](const std::vector<Var>& all) { return body(all[0], all[1]); });
    const double forward = watch.seconds();
    tape.backward(y, dy_);
    const double both = watch.seconds();
    const CommStats after = world_.stats();
    const auto of = [](const CommStats& stats) {
      return stats.of(CollectiveKind::kAllGather).seconds +
             stats.of(CollectiveKind::kReduceScatterSum).seconds;
    };
    return {forward, both - forward, of(after) - of(before), after.blocked - before.blocked};
  }

 private:
  [[nodiscard]] Param make(const Shape& shape, const std::shared_ptr<Pool>& pool,
                           bool wide = false) const {
    Param w("bench", shape, Init::normal(kStdDev));
    w.wide = wide;
    set_compute(w, type_);
    allocate(w, accumulator_of(type_), pool);
    initialise(w, 1);
    w.grad = Tensor(shape, accumulator_of(type_), pool, "bench");
    w.grad.fill_zero();
    w.fresh = false;
    return w;
  }

  Var body(const Var& s, const Var& gates) {
    if (slices_) {
      const Var mixed = stream_linear(s, gates, kernels_, bias_);
      return linear_wide(gelu(mixed, GeluForm::kTanh), down_);
    }
    const Var mine = take_columns(gates, first_, kernels_.shape[0]);
    return stream_linear(s, mine, kernels_, bias_, MixOrder::kScaled, SumType::kWide);
  }

  Group& world_;
  bool slices_;
  DType type_;
  int64_t first_ = 0;
  Param kernels_, bias_, down_;
  Tensor s_, gates_, dy_;
};

std::vector<ChunkTiming> chunkings(int64_t rows) {
  std::vector<ChunkTiming> all;
  for (int64_t chunks = 1; chunks <= kMostChunks; chunks *= 2) {
    const int64_t each = (rows + chunks - 1) / chunks;
    if (chunks > 1 && each < kLeastRows) break;
    all.push_back({(rows + each - 1) / each, each});
  }
  return all;
}

}  // namespace

std::vector<ChunkTiming> bench_streams(Group& world, const RankContext& context,
                                       const StreamBenchOptions& options) {
  AB_CHECK(world.size() > 1 && options.streams >= world.size(), options.streams, " streams over ",
           world.size(), " ranks");
  Streams streams(world, context, options);
  std::vector<ChunkTiming> all = chunkings(options.rows);
  std::vector<std::vector<Streams::Seconds>> seconds(all.size());
  for (int64_t round = -1; round < options.rounds; ++round) {
    for (size_t n = 0; n < all.size(); ++n) {
      const size_t i = round % 2 == 0 ? n : all.size() - 1 - n;  // none always follows the same
      const Streams::Seconds took = streams.run(all[i].rows);
      if (round >= 0) seconds[i].push_back(took);
    }
    if (round >= 0 && options.on_round) options.on_round(round + 1);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const auto of = [&](double Streams::Seconds::*member) {
      std::vector<double> values;
      for (const Streams::Seconds& took : seconds[i]) values.push_back(took.*member);
      return values;
    };
    all[i].forward = median(slowest(world, of(&Streams::Seconds::forward)));
    all[i].backward = median(slowest(world, of(&Streams::Seconds::backward)));
    all[i].communication = median(of(&Streams::Seconds::communication));
    all[i].waited = median(of(&Streams::Seconds::waited));
  }
  return all;
}

}  // namespace anabranch
