#include "runtime/control.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace anabranch {
namespace {

// Places in the exchanged vector: the loss, a count per kind of stop, a count per phase.
constexpr int kLoss = 0, kStops = 1, kPhases = 5, kPlaces = 10;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::vector<Spread> spread(Group& world, const std::vector<double>& mine) {
  const auto n = std::ssize(mine);
  Tensor part = Tensor::of<double>({1, n}, mine);
  Tensor whole({world.size(), n}, DType::kF64);
  world.all_gather(whole, part).wait();
  std::vector<Spread> spreads;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> all;
    for (int64_t r = 0; r < world.size(); ++r) {
      const double value = whole.data<double>()[r * n + i];
      if (!std::isnan(value)) all.push_back(value);
    }
    if (all.empty()) {
      spreads.push_back({kUnknown, kUnknown, kUnknown, 0});
      continue;
    }
    std::ranges::sort(all);
    const double sum = std::accumulate(all.begin(), all.end(), 0.0);
    spreads.push_back({all.front(), all[all.size() / 2], all.back(), sum});
  }
  return spreads;
}

Control exchange(Group& world, double loss, StopKind stop, CheckpointSaver::Phase phase) {
  Tensor sums({kPlaces}, DType::kF64);
  sums.fill_zero();
  double* place = sums.data<double>();
  place[kLoss] = loss;
  place[kStops + static_cast<int>(stop)] = 1;
  place[kPhases + static_cast<int>(phase)] = 1;
  world.all_reduce_sum(sums).wait();

  Control control;
  control.loss = place[kLoss];
  for (const StopKind kind : {StopKind::kSave, StopKind::kRequeue, StopKind::kInterrupt}) {
    if (place[kStops + static_cast<int>(kind)] > 0) control.stop = kind;
  }
  const auto ranks_in = [&](CheckpointSaver::Phase p) {
    return static_cast<int>(std::lround(place[kPhases + static_cast<int>(p)]));
  };
  control.writing = ranks_in(CheckpointSaver::Phase::kWriting);
  control.written = ranks_in(CheckpointSaver::Phase::kWritten);
  control.publishing = ranks_in(CheckpointSaver::Phase::kPublishing);
  control.failed = ranks_in(CheckpointSaver::Phase::kFailed);
  return control;
}

}  // namespace anabranch
