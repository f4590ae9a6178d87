#include "runtime/bench/save_bench.h"

#include <algorithm>

#include "core/base/error.h"
#include "runtime/bench/random_step.h"
#include "runtime/bench/timing.h"
#include "runtime/checkpoint/saver.h"

namespace anabranch {
namespace {

// Whether a rank is still writing; steps are collective, so all have to agree.
bool any_writes(Group& world, const CheckpointSaver& saver) {
  const bool mine = saver.phase() == CheckpointSaver::Phase::kWriting;
  Tensor flag = Tensor::of<double>({1}, {mine ? 1.0 : 0.0});
  world.all_reduce_max(flag).wait();
  return flag.data<double>()[0] > 0;
}

SaveCost save(RandomStep& step, CheckpointSaver& saver, Group& world, int64_t number) {
  Manifest header = step.state().header({});
  header.step = number;
  saver.start(header, step.state().items());
  SaveCost cost;
  while (any_writes(world, saver)) cost.step_seconds.push_back(step.run().seconds);
  saver.join();
  if (!saver.error().empty()) throw io_error("saving failed: ", saver.error());
  world.barrier();
  cost.stall_seconds = saver.timing().stall_seconds;
  cost.write_seconds = saver.timing().write_seconds;
  saver.publish();
  saver.join();
  world.barrier();
  return cost;
}

double median_of(const std::vector<SaveCost>& all, const auto& value) {
  std::vector<double> values;
  for (const SaveCost& cost : all) values.push_back(value(cost));
  return median(values);
}

}  // namespace

double SaveBench::stall() const {
  return median_of(later, [](const SaveCost& c) { return c.stall_seconds; });
}

double SaveBench::write() const {
  return median_of(later, [](const SaveCost& c) { return c.write_seconds; });
}

double SaveBench::lost() const {
  const double plain = median(step_seconds);
  return median_of(later, [plain](const SaveCost& c) {
    double slower = 0;
    for (const double seconds : c.step_seconds) slower += seconds - plain;
    return c.stall_seconds + std::max(slower, 0.0);
  });
}

double SaveBench::step_beside() const {
  std::vector<double> all;
  for (const SaveCost& cost : later) {
    all.insert(all.end(), cost.step_seconds.begin(), cost.step_seconds.end());
  }
  return median(all);
}

SaveBench bench_save(const Config& config, int64_t vocabulary, const std::filesystem::path& folder,
                     int64_t steps, int64_t saves, Group& world, RankContext& context) {
  RandomStep step(config, vocabulary, world, context);
  CheckpointSaver saver(CheckpointDirectory(folder), world.rank(), world.size(),
                        {.keep_last = 1, .keep_every = 0}, context.trace);
  SaveBench result;
  for (int64_t i = 0; i <= steps; ++i) {
    const double seconds = step.run().seconds;
    if (i > 0) result.step_seconds.push_back(seconds);
  }
  result.first = save(step, saver, world, 1);
  for (int64_t i = 1; i < std::max<int64_t>(saves, 2); ++i) {
    result.later.push_back(save(step, saver, world, i + 1));
  }
  result.bytes = saver.timing().bytes;
  return result;
}

}  // namespace anabranch
