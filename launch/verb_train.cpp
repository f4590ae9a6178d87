#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <malloc.h>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/parallel_for.h"
#include "core/base/read_file.h"
#include "data/shard/dataset.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/rank_process.h"
#include "launch/run_display.h"
#include "launch/stop_signals.h"
#include "monitoring/disk_sampler.h"
#include "monitoring/gpu_sampler.h"
#include "monitoring/server.h"
#include "monitoring/targets_file.h"
#include "runtime/config/number.h"
#include "runtime/config/validate_parallel.h"
#include "runtime/loaded_model.h"
#include "runtime/log_sink.h"
#include "runtime/metrics_sink.h"
#include "runtime/rank_plan.h"
#include "runtime/run_data.h"
#include "runtime/sweep/record.h"
#include "runtime/trainer.h"

namespace anabranch {
namespace {

struct TrainWish {
  std::string config, resume = "auto", profile;
  std::vector<std::string> sets;
};

Resume resume_of(const std::string& word) {
  if (word == "must") return Resume::kMust;
  return word == "never" ? Resume::kNever : Resume::kAuto;
}

// "10:12" as the first and last step to trace.
std::pair<int64_t, int64_t> profile_of(const std::string& text) {
  if (text.empty()) return {-1, -1};
  const size_t colon = text.find(':');
  try {
    size_t used_first = 0, used_last = 0;
    const std::string last_text = colon == std::string::npos ? text : text.substr(colon + 1);
    const int64_t first = std::stoll(text.substr(0, colon), &used_first);
    const int64_t last = std::stoll(last_text, &used_last);
    const bool whole = used_first == std::min(colon, text.size()) && used_last == last_text.size();
    if (whole && 0 <= first && first <= last) return {first, last};
  } catch (const std::exception&) {
    // falls through to the message
  }
  throw usage_error("--profile ", text, ": expected FIRST:LAST, two steps like 10:12");
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// What only rank 0 has: the endpoint and the lines of metrics.jsonl.
class Telemetry {
 public:
  Telemetry(const Config& config, const RunDirectory& run, std::vector<std::string> sources,
            int ranks, bool gpus, Log& log)
      : metrics_(labels(config, run), sources, part_counts(config.model),
                 config.metrics.label_limit, gpus),
        history_(std::move(sources)),
        lines_(run.metrics().string(), [&log](const std::string& w) { log.warn(w); }),
        server_(metrics_, history_, config.metrics.listen,
                [&log](const std::string& w) { log.warn(w); }),
        sink_(metrics_, history_, lines_) {
    metrics_.set(Metric::kRanks, ranks);
    metrics_.set(Metric::kSweepRuns, sweep_runs(run));
    metrics_.set(Metric::kCheckpointEvery, static_cast<double>(config.checkpoint.every_steps));
    reap_stale_targets(std::filesystem::absolute(run.path()).lexically_normal().parent_path());
    if (!server_.serving()) return;
    disk_.emplace(metrics_, run.path().string());
    std::error_code seen_when_written;
    std::filesystem::create_directory(run.discovery().parent_path(), seen_when_written);
    for (const std::filesystem::path& file : {run.path() / TargetsFile::kName, run.discovery()}) {
      targets_.emplace_back(
          std::make_unique<TargetsFile>(file.string(), server_.address(), labels(config, run),
                                        [&log](const std::string& w) { log.warn(w); }));
    }
    std::cerr << "metrics at http://" << server_.address() << "/metrics\n";
  }

  ReportSink& sink() { return sink_; }

 private:
  static Labels labels(const Config& config, const RunDirectory& run) {
    const char* job = std::getenv("SLURM_JOB_ID");
    return {{"run", config.run.name},
            {"sweep", run.sweep().empty() ? "none" : run.sweep().filename().string()},
            {"model", std::string(word_of(config.model.type))},
            {"precision", std::string(word_of(config.train.precision))},
            {"job", job != nullptr ? job : "none"}};
  }

  static double sweep_runs(const RunDirectory& run) {
    if (run.sweep().empty()) return 0;
    try {
      return static_cast<double>(read_record(run.sweep().string()).runs.size());
    } catch (const Error&) {
      return std::numeric_limits<double>::quiet_NaN();  // a damaged record is no reason to end
    }
  }

  Metrics metrics_;
  RunHistory history_;
  JsonLines lines_;
  MetricsServer server_;
  std::optional<DiskSampler> disk_;
  std::vector<std::unique_ptr<TargetsFile>> targets_;
  MetricsSink sink_;
};

void announce(const Config& config, RankProcess& process, const RankPlan& plan) {
  const std::string text = join("run ", config.run.name, " in ", config.run.dir, ": ",
                                counted(process.context().size, "rank"), ", ",
                                batch_text(plan.batch), "\n", plan_table(plan));
  std::cerr << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) process.context().log->info(line);
}

// Keeps with the run what it is made of: its configuration, how its ranks share the work, and the
// tokenizer of what its model reads and writes.
void keep_origin(const Config& config, const RankPlan& plan, const Dataset& dataset,
                 const RunDirectory& directory) {
  directory.write("config.yaml", dump_config(config, build_lines()));
  directory.write("plan.txt", plan_table(plan));
  directory.write("plan.json", rank_plan_json(plan));
  directory.write(kRunTokenizer, read_file(dataset.tokenizer_path()));
}

// The values of the metrics' `source` label.
std::vector<std::string> source_names(const Dataset& dataset) {
  if (dataset.sources().size() == 1) return {"all"};
  std::vector<std::string> names;
  for (const DataSource& source : dataset.sources()) names.push_back(source.name);
  return names;
}

// What all ranks take from the data set, which rank 0 has opened: its vocabulary, and the steps
// that the epochs of a run come to. Returns the vocabulary.
int64_t share_facts(Config& config, const std::optional<Dataset>& dataset, Group& world) {
  if (dataset) fill_steps(config, *dataset);
  const int64_t vocabulary = dataset ? dataset->tokenizer().vocab_size : 0;
  Tensor facts = Tensor::of<int64_t>({2}, {vocabulary, dataset ? config.train.steps : 0});
  world.broadcast(facts, 0).wait();
  if (config.train.epochs > 0) config.train.steps = facts.data<int64_t>()[1];
  return facts.data<int64_t>()[0];
}

// How the ranks share the run. Refuses, on all of them alike, what does not go together or does not
// fit, before anything large is allocated.
RankPlan plan_of(const Config& config, int64_t vocabulary, RankProcess& process) {
  const std::string host = process.topology().hosts[static_cast<size_t>(process.context().rank)];
  const RankPlace mine{host, process.context().threads, process.host_memory()};
  RankPlan plan =
      plan_ranks(config, gather_places(process.world(), mine), need_of(config, vocabulary));
  plan.devices = process.devices();
  return plan;
}

Config config_of(const TrainWish& wish) {
  Config config = load_config(wish.config, wish.sets);
  validate(config);
  return config;
}

// What each checkpoint says of how it came about.
std::map<std::string, std::string> facts_of(const Config& config, const RankProcess& process) {
  return {{"config", dump_config(config)},
          {"build", joined(build_lines())},
          {"ranks", std::to_string(process.context().size)},
          {"threads", std::to_string(process.context().threads)},
          {"device", process.devices().hardware()}};
}

// Threads come and go, one a save, beside those of the endpoint; else each would find a heap of its
// own, and fill it. What is large comes from the pool.
void share_heaps() {
  constexpr int kHeaps = 2;
  mallopt(M_ARENA_MAX, kHeaps);
}

int run(const TrainWish& wish, StopRequest& stop, RankProcess& process) {
  Config config = config_of(wish);
  check_ranks(config, process.world().size());
  if (config.parallel.threads > 0) {
    process.context().threads = static_cast<int>(config.parallel.threads);
    set_thread_count(process.context().threads);
  }
  // Opening data and checkpoints takes ranks unequally long; the trainer shortens the deadline.
  constexpr double kStartFactor = 10;
  process.world().set_deadline(kStartFactor *
                               static_cast<double>(config.parallel.deadline_seconds));
  require_same(process.world(), "the build", joined(build_lines()));
  std::optional<Dataset> dataset;
  if (process.first()) dataset.emplace(Dataset::open(config.data.path));
  const int64_t vocabulary = share_facts(config, dataset, process.world());
  require_same(process.world(), "the configuration", dump_config(config));
  process.take_device(device_wish(config), config.run.dir + "/log");
  const RankPlan plan = plan_of(config, vocabulary, process);
  const Config planned = as_planned(config, plan);
  const std::unique_ptr<Group> ordered = training_group(process.world(), plan);

  RunDirectory directory(config.run.dir, process.first());
  process.open_log(directory.log(process.context().rank).string());
  LogSink log_sink(*process.context().log);
  TrainJob job{planned,
               {},
               resume_of(wish.resume),
               profile_of(wish.profile),
               process.context(),
               ordered ? *ordered : process.world(),
               directory,
               stop,
               {&log_sink}};
  job.give_up = [](int code) { _exit(code); };
  job.facts = facts_of(config, process);

  const std::unique_ptr<GpuSampler> gpu = process.sample_gpu();
  if (gpu) job.gpu = [&gpu] { return gpu->latest(); };

  std::optional<Telemetry> telemetry;
  std::optional<RunDisplay> display;
  if (process.first()) {
    announce(config, process, plan);
    job.on_start = [&] { keep_origin(config, plan, *dataset, directory); };
    telemetry.emplace(config, directory, source_names(*dataset), process.world().size(),
                      gpu != nullptr && gpu->present(), *process.context().log);
    display.emplace();
    job.sinks.push_back(&telemetry->sink());
    job.sinks.push_back(&*display);
  }
  const int code = train(job);
  if (job.profile.first >= 0) {
    const std::string name = "trace-rank-" + std::to_string(process.context().rank) + ".json";
    directory.write(name, process.context().trace->json(process.context().rank));
  }
  return code;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("train", "trains; under mpirun or srun each process is a rank");
  auto wish = std::make_shared<TrainWish>();
  verb->add_option("CONFIG", wish->config, "YAML file")->required();
  verb->add_option("--set", wish->sets, "a.b=c: overrides a key")->allow_extra_args(false);
  add_word(*verb, "--resume", wish->resume, {"auto", "must", "never"},
           "auto: from the newest checkpoint if there is one");
  verb->add_option("--profile", wish->profile, "FIRST:LAST steps to write a Chrome trace of");
  verb->callback([wish, &exit_code] {
    share_heaps();  // before there are threads
    StopRequest stop;
    const StopSignals signals(stop);  // before MPI and its threads: a wish while it starts is kept
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, stop, process); });
  });
}

}  // namespace anabranch
