#include "runtime/bench/step_pair.h"

#include "monitoring/process.h"
#include "runtime/bench/random_step.h"
#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

class Runner {
 public:
  Runner(const Config& config, int64_t vocabulary, Group& world, RankContext& context)
      : step_(config, vocabulary, world, context) {
    side_.parameters = step_.state().store().parameter_count();
    side_.macs_per_token = step_.model().cost().macs();
    side_.tokens_per_step = config.train.batch_tokens;
  }

  void run(int64_t round) {
    const RandomStep::Times times = step_.run();
    if (round < 0) return;
    side_.seconds.push_back(times.seconds);
    updates_.push_back(times.update);
  }

  [[nodiscard]] StepPair::Side take() {
    side_.update_seconds = median(updates_);
    return std::move(side_);
  }

 private:
  RandomStep step_;
  StepPair::Side side_;
  std::vector<double> updates_;
};

}  // namespace

double StepPair::macs_ratio() const {
  const auto of = [](const Side& s) {
    return s.macs_per_token * static_cast<double>(s.tokens_per_step);
  };
  return of(first) / of(second);
}

StepPair bench_step_pair(const Config& first, const Config& second, int64_t vocabulary,
                         int64_t pairs, Group& world, RankContext& context) {
  Runner one(first, vocabulary, world, context), other(second, vocabulary, world, context);
  take_turns(
      pairs, [&](int64_t round) { one.run(round); }, [&](int64_t round) { other.run(round); });
  StepPair result;
  result.first = one.take();
  result.second = other.take();
  result.ratio = paired_ratio(result.first.seconds, result.second.seconds);
  result.pool_peak_bytes = context.pool->usage().peak;
  result.resident_peak_bytes = resident_peak_bytes();
  return result;
}

}  // namespace anabranch
