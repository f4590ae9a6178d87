#include "runtime/bench/save_bench.h"

#include <algorithm>

#include "core/base/error.h"
#include "runtime/bench/random_step.h"
#include "runtime/bench/timing.h"
#include "runtime/checkpoint/saver.h"

namespace anabranch {
namespace {

// What holds for any rank; steps are collective, so all have to agree.
struct Agreed {
  bool writing = false, stop = false;
};

Agreed agree(Group& world, const CheckpointSaver& saver, const StopRequest& stop) {
  const bool writing = saver.phase() == CheckpointSaver::Phase::kWriting;
  const bool wish = stop.pending() != StopKind::kNone;
  Tensor flags = Tensor::of<double>({2}, {writing ? 1.0 : 0.0, wish ? 1.0 : 0.0});
  world.all_reduce_max(flags).wait();
  return {flags.data<double>()[0] > 0, flags.data<double>()[1] > 0};
}

// One save and the steps beside it; nothing if all ranks stop.
std::optional<SaveCost> save(RandomStep& step, CheckpointSaver& saver, Group& world, int64_t number,
                             const StopRequest& stop) {
  Manifest header = step.state().header({});
  header.step = number;
  saver.start(header, step.state().items());
  SaveCost cost;
  Agreed now = agree(world, saver, stop);
  for (; now.writing && !now.stop; now = agree(world, saver, stop)) {
    cost.step_seconds.push_back(step.run().seconds);
  }
  saver.join();
  if (!saver.error().empty()) throw io_error("saving failed: ", saver.error());
  world.barrier();
  cost.stall_seconds = saver.timing().stall_seconds;
  cost.write_seconds = saver.timing().write_seconds;
  saver.publish();
  saver.join();
  world.barrier();
  if (now.stop) return {};
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

std::optional<SaveBench> bench_save(const Config& config, const SaveBenchOptions& options,
                                    Group& world, RankContext& context, const StopRequest& stop) {
  RandomStep step(config, options.vocabulary, world, context);
  CheckpointSaver saver(CheckpointDirectory(options.folder), world.rank(), world.size(),
                        {.keep_last = 1, .keep_every = 0}, context.trace);
  saver.prepare(step.state().items());  // as training does: the first save finds its memory
  SaveBench result;
  for (int64_t i = 0; i <= options.steps; ++i) {
    const double seconds = step.run().seconds;
    if (i > 0) result.step_seconds.push_back(seconds);
    if (agree(world, saver, stop).stop) return {};
  }
  for (int64_t i = 0; i < std::max<int64_t>(options.saves, 2); ++i) {
    const std::optional<SaveCost> cost = save(step, saver, world, i + 1, stop);
    if (!cost) return {};
    if (i == 0) {
      result.first = *cost;
    } else {
      result.later.push_back(*cost);
    }
  }
  result.bytes = saver.timing().bytes;
  return result;
}

}  // namespace anabranch
