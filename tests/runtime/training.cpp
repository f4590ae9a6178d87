#include "tests/runtime/training.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/base/parallel_for.h"
#include "parallel/comm/device_group.h"
#include "runtime/rank_plan.h"
#include "tests/data/shard/text_set.h"
#include "tests/support/tolerance.h"

namespace anabranch::test {
namespace {

// Keeps what a rank reports.
class Recorder final : public ReportSink {
 public:
  Recorder(Training& to, int rank, const TrainingOptions& options, StopRequest& stop)
      : to_(to), rank_(rank), options_(options), stop_(stop) {}

  void step(const StepReport& report) override {
    to_.steps[static_cast<size_t>(rank_)].push_back(report);
    if (options_.after_step) options_.after_step(rank_, report.step, stop_);
  }

  void eval(const EvalReport& report) override {
    if (rank_ == 0) to_.evals.push_back(report);
  }

  void save(const SaveReport& report) override {
    if (rank_ == 0) to_.saves.push_back(report);
  }

  void event(const std::string& kind, const std::string& text) override {
    if (rank_ == 0) to_.events.push_back(kind + ": " + text);
  }

 private:
  Training& to_;
  int rank_;
  const TrainingOptions& options_;
  StopRequest& stop_;
};

// The group and configuration of a run whose ranks lie on these hosts.
struct Placed {
  Placed(Group& world, const Config& wish, const std::vector<std::string>& hosts) : config(wish) {
    if (hosts.empty()) return;
    std::vector<RankPlace> places;
    for (const std::string& host : hosts) places.push_back({host, 1, 1e9});
    const RankPlan plan = plan_ranks(wish, places, [](const MeshShape&) { return MemoryNeed{}; });
    config = as_planned(wish, plan);
    ordered = training_group(world, plan);
  }

  [[nodiscard]] Group& group(Group& world) const { return ordered ? *ordered : world; }

  Config config;
  std::unique_ptr<Group> ordered;
};

}  // namespace

TrainingFolder::TrainingFolder(bool with_mask) {
  const std::string text = (dir_ / "text.jsonl").string();
  spill(text, json_lines(documents(120, 7, 30)));
  build_shards(byte_tokenizer("bytes", with_mask), build_options((dir_ / "data").string(), {text}));
}

Config TrainingFolder::config(const std::string& run, int64_t steps) const {
  Config config;
  config.run.dir = (dir_ / run).string();
  config.data.path = (dir_ / "data").string();
  config.model.layers = 2;
  config.model.width = 16;
  config.model.heads = 2;
  config.model.context = 16;
  config.train.batch_tokens = config.model.context * 12;
  config.train.steps = steps;
  config.optim.lr = 3e-3;
  config.optim.warmup_steps = 2;
  config.parallel.bucket_mb = 0.01;  // several buckets, so that they come in any order
  config.parallel.deadline_seconds = 60;
  fill_derived(config);
  return config;
}

std::vector<double> Training::losses() const {
  std::vector<double> all;
  for (const StepReport& report : steps.front()) all.push_back(report.loss);
  return all;
}

Training run_training(const Config& config, const TrainingOptions& options) {
  Training own;
  Training& training = options.record != nullptr ? *options.record : own;
  const auto ranks = static_cast<size_t>(options.ranks);
  training.codes.assign(ranks, -1);
  training.steps.assign(ranks, {});
  run_on_threads(options.ranks, [&](Group& threads) {
    Device device = options.device;
    if (device.is_cuda()) device.index = threads.rank();
    const std::unique_ptr<Group> on_gpus =
        device.is_cuda() ? device_group(threads.split(0, threads.rank()), device) : nullptr;
    Group& world = on_gpus ? *on_gpus : threads;
    set_thread_count(1);
    world.set_deadline(static_cast<double>(config.parallel.deadline_seconds));
    Trace trace;
    RankContext context;
    context.rank = world.rank();
    context.size = world.size();
    context.device = device;
    context.pool = std::make_shared<Pool>(device);
    context.trace = &trace;
    RunDirectory directory(config.run.dir, world.rank() == 0);
    StopRequest stop;
    Recorder recorder(training, world.rank(), options, stop);
    const Placed placed(world, config, options.hosts);
    TrainJob job{placed.config,  {{"config", dump_config(config)}},
                 options.resume, options.profile,
                 context,        placed.group(world),
                 directory,      stop,
                 {&recorder}};
    if (options.gpu) job.gpu = [&] { return options.gpu(world.rank()); };
    job.give_up = options.give_up;
    try {
      training.codes[static_cast<size_t>(world.rank())] = train(job);
    } catch (const Error& error) {
      if (options.failed) options.failed(error);
      throw;
    }
    if (world.rank() == 0) training.trace_bytes = trace.json(0).size();
  });
  return training;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], kLayouts.relative * std::abs(want[i]))
        << what << ", step " << i + 1;
  }
}

}  // namespace anabranch::test
