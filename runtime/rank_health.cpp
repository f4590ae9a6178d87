#include "runtime/rank_health.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "parallel/topology.h"
#include "runtime/rank_plan.h"
#include "runtime/replica_check.h"

namespace anabranch {
namespace {

// Seconds of the slowest rank: in less than that a busy machine makes any rank look slow.
constexpr double kLeastWindow = 0.5;

// This rank's figure beside those of all others, by rank.
std::vector<double> gather(Group& world, double mine) {
  Tensor whole({world.size()}, DType::kF64);
  world.all_gather(whole, Tensor::of<double>({1}, {mine})).wait();
  const std::span<const double> all = whole.span<double>();
  return {all.begin(), all.end()};
}

}  // namespace

bool SlowRank::add(const std::vector<double>& seconds) {
  const auto slowest = std::ranges::max_element(seconds);
  const int rank = static_cast<int>(slowest - seconds.begin());
  // Of two ranks the faster one: the slow one must not measure itself.
  std::vector<double> sorted = seconds;
  const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
  std::ranges::nth_element(sorted, middle);
  ratio_ = *middle > 0 ? *slowest / *middle : 1;
  const bool again = rank == rank_ && windows_ > 0;
  windows_ = ratio_ < kRatio ? 0 : again ? windows_ + 1 : 1;
  rank_ = rank;
  return windows_ > 0 && windows_ % kWindows == 0;
}

RankHealth::RankHealth(Group& world, const RankContext& context, const Config& config,
                       Watchdog& watchdog, Tell tell)
    : world_(world),
      context_(context),
      config_(config),
      watchdog_(watchdog),
      tell_(std::move(tell)),
      names_(gather_text(world, join("rank ", context.rank, " on ", host_name()))) {}

void RankHealth::step_done(StepReport& report, double compute_seconds) {
  window_seconds_ += compute_seconds;
  if (report.logged && world_.size() > 1) {
    const std::vector<double> window = gather(world_, window_seconds_);
    const bool long_enough = std::ranges::max(window) >= kLeastWindow;
    if (long_enough) window_seconds_ = 0;
    if (long_enough && slow_.add(window)) {
      tell_("slow", join(names_[static_cast<size_t>(slow_.rank())], " has computed ", slow_.ratio(),
                         " x as long as the median rank, up to step ", report.step,
                         ", and holds up the others"));
    }
  }
  report.slowest_ratio = slow_.ratio();
  watchdog_.step_done(report.seconds);
  const auto deadline = static_cast<double>(config_.parallel.deadline_seconds);
  const double limit = watchdog_.limit();
  world_.set_deadline(limit > 0 ? std::min(deadline, limit) : deadline);
}

void RankHealth::check_weights(TrainStep& train, int64_t step, bool always) {
  const int64_t every = config_.parallel.check_every;
  if (every == 0 || (!always && step % every != 0)) return;
  context_.heartbeat->at("compare weights");
  check_replicas(train.mesh(), replicas_of(train.model(), config_.parallel.zero == 0), names_,
                 {step, last_good_});
  last_good_ = step;
}

}  // namespace anabranch
