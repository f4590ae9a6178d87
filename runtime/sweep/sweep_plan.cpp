#include "runtime/sweep/sweep_plan.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/base/error.h"
#include "data/shard/dataset.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/planner/plan.h"
#include "runtime/run_data.h"

namespace anabranch {

namespace {

// A point on so many ranks.
struct Choice {
  int ranks = 0;
  std::string refused, layout;
  double step_seconds = 0, memory_bytes = 0, device_memory = 0;

  // Steps a second that a rank has to show for itself.
  [[nodiscard]] double rate() const { return 1 / (step_seconds * ranks); }
};

std::vector<int> numbers_of_ranks(const Cluster& cluster) {
  std::vector<int> all;
  for (int r = 1; r <= cluster.ranks_per_host; ++r) {
    if (cluster.ranks_per_host % r == 0) all.push_back(r);
  }
  for (int n = 2; n < cluster.nodes; n *= 2) all.push_back(n * cluster.ranks_per_host);
  if (cluster.nodes > 1) all.push_back(cluster.ranks());
  return all;
}

// A part of a host: its ranks have the cores that they have when the host is full.
Machine part_of_host(Machine machine, int ranks, int ranks_per_host) {
  if (machine.device.kind == DeviceKind::kCpu) {
    machine.host.devices.value *= static_cast<double>(ranks) / ranks_per_host;
  }
  return machine;
}

// The layout that `train` would take; null: none is legal. One that does not fit if none does.
const LayoutPlan* as_trained(const Plan& plan, const Config& config, bool zero) {
  const ParallelConfig& keys = config.parallel;
  const auto allowed = [&](const LayoutPlan& p) {
    const bool slice = p.layout.streams == StreamLayout::kSlice;
    const bool model = keys.model.is_auto() || keys.model.value == p.layout.mesh.model;
    const bool streams = !p.layout.has_streams || keys.stream_layout == StreamLayoutChoice::kAuto ||
                         slice == (keys.stream_layout == StreamLayoutChoice::kSlice);
    return p.legal() && model && streams && (p.layout.ranks() == 1 || p.layout.zero == zero);
  };
  const LayoutPlan* best = nullptr;
  for (const LayoutPlan& p : plan.layouts) {  // the fastest first
    if (!allowed(p)) continue;
    const bool better = best == nullptr || (p.fits && !best->fits) ||
                        (p.fits == best->fits && p.layout.mesh.model < best->layout.mesh.model);
    if (better) best = &p;
  }
  return best;
}

std::string too_large(const LayoutPlan& p, const Plan& plan, const Config& config) {
  std::string text = join(
      "does not fit ", counted(plan.cluster.ranks(), "rank"), ": ", p.layout.name(), " needs ",
      gib(std::max(p.memory.total(), p.memory.reserved())), " a rank of ", gib(plan.device_memory));
  const LayoutPlan* divided = as_trained(plan, config, true);
  if (config.parallel.zero == 0 && divided != nullptr && divided->fits) {
    text += "; it fits with parallel.zero=1";
  } else if (config.train.micro_batch > 1) {
    text += join("; give a train.micro_batch below ", config.train.micro_batch);
  }
  return text;
}

Choice choice_of(const Config& config, int64_t vocabulary, int ranks, const Cluster& cluster,
                 const Machine& machine) {
  Choice choice;
  choice.ranks = ranks;
  const int host = cluster.ranks_per_host;
  const Cluster own = ranks <= host ? Cluster{1, ranks} : Cluster{ranks / host, host};
  try {
    const Plan plan =
        make_plan(config, vocabulary, own, part_of_host(machine, own.ranks_per_host, host));
    const LayoutPlan* best = as_trained(plan, config, config.parallel.zero == 1);
    if (best == nullptr) {
      choice.refused = plan.layouts.empty() ? "no layout" : plan.layouts.front().refused;
      if (plan.best() != nullptr) choice.refused = "parallel.model is no legal number of its ranks";
      return choice;
    }
    if (!best->fits) choice.refused = too_large(*best, plan, config);
    choice.layout = best->layout.name();
    choice.step_seconds = best->seconds.total();
    choice.memory_bytes = std::max(best->memory.total(), best->memory.reserved());
    choice.device_memory = plan.device_memory;
  } catch (const Error& error) {
    if (error.fault() != Fault::kConfig) throw;
    choice.refused = error.what();
  }
  return choice;
}

// The numbers of ranks that a point can have, planned one by one as they are asked for.
class Choices {
 public:
  Choices(const Config& config, int64_t vocabulary, const Cluster& cluster, const Machine& machine,
          std::vector<int> numbers)
      : config_(config),
        vocabulary_(vocabulary),
        cluster_(cluster),
        machine_(machine),
        numbers_(std::move(numbers)) {}

  // The fewest that fit come first, then more at which a rank does enough. Null: there are no more.
  const Choice* at(size_t index) {
    while (found_.size() <= index && tried_ < numbers_.size()) {
      Choice choice = choice_of(config_, vocabulary_, numbers_[tried_++], cluster_, machine_);
      const bool worth = found_.empty() || choice.rate() >= kLeastEfficiency * found_[0].rate();
      if (choice.refused.empty() && worth) found_.push_back(choice);
      // What does not fit the most ranks says more than what does not divide among them.
      if (why_.empty() || choice.device_memory > 0) why_ = choice.refused;
    }
    return index < found_.size() ? &found_[index] : nullptr;
  }

  // Why there is none at all.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  const Config& config_;
  int64_t vocabulary_;
  const Cluster& cluster_;
  const Machine& machine_;
  std::vector<int> numbers_;
  size_t tried_ = 0;
  std::vector<Choice> found_;
  std::string why_;
};

// What a step costs does not depend on these.
std::string cost_key(Config config) {
  config.run = {};
  config.data.path.clear();
  config.data.seed = 0;
  config.eval = {};
  config.optim.lr = OptimConfig{}.lr;
  config.train.steps = config.train.tokens = 0;
  return dump_config(config);
}

// 0: it is a number of epochs, of data that are not here.
int64_t steps_of(Config config) {
  std::error_code ignored;
  if (planned_steps(config.train) == 0 && std::filesystem::exists(config.data.path, ignored)) {
    fill_steps(config, Dataset::open(config.data.path));
  }
  return planned_steps(config.train);
}

class SweepPlanner {
 public:
  SweepPlanner(const Sweep& sweep, const Cluster& cluster, const Machine& machine,
               const SweepPlanOptions& options)
      : sweep_(sweep), machine_(machine), options_(options) {
    plan_.cluster = cluster;
    plan_.machine = machine.name;
    plan_.on_gpu = machine.device.kind == DeviceKind::kGpu;
    check_hosts();
  }

  SweepPlan run(const std::function<void(size_t, size_t)>& progress) {
    for (size_t p = 0; p < sweep_.points.size(); ++p) {
      add_point(p);
      if (progress) progress(p + 1, sweep_.points.size());
    }
    if (options_.remaining) {
      runs_ = *options_.remaining;
    } else {
      for (size_t r = 0; r < sweep_.runs.size(); ++r) runs_.push_back(r);
    }
    for (const size_t r : runs_) {
      PointPlan& point = plan_.points[sweep_.runs[r].point];
      ++point.runs;
      plan_.runs_left_out += point.planned() ? 0 : 1;
    }
    std::erase_if(runs_, [this](size_t r) { return !point_of(r).planned(); });
    widen_last();
    fill_totals();
    return std::move(plan_);
  }

 private:
  void check_hosts() const {
    const Cluster& cluster = plan_.cluster;
    if (plan_.on_gpu && cluster.ranks_per_host > machine_.host.devices.value) {
      throw config_error(cluster.ranks_per_host, " ranks a node, and ", machine_.name, " has ",
                         number_text(machine_.host.devices.value),
                         " devices a host: a rank has one");
    }
    const int ranks = options_.ranks, host = cluster.ranks_per_host;
    const bool divides = ranks <= host ? ranks == 0 || host % ranks == 0 : ranks % host == 0;
    if (divides && ranks <= cluster.ranks()) return;
    throw config_error(ranks, " ranks a run on ", counted(cluster.nodes, "node"), " of ", host,
                       ": expected a number that divides ", host, ", or whole nodes of them");
  }

  [[nodiscard]] const PointPlan& point_of(size_t run) const {
    return plan_.points[sweep_.runs[run].point];
  }

  // Planned once for points that cost alike.
  Choices& choices_of(const Config& config) {
    const std::string key = cost_key(config);
    const auto known = by_cost_.find(key);
    if (known != by_cost_.end()) return known->second;
    const std::vector<int> numbers =
        options_.ranks > 0 ? std::vector<int>{options_.ranks} : numbers_of_ranks(plan_.cluster);
    Choices choices(config, sweep_.vocabulary, plan_.cluster, machine_, numbers);
    return by_cost_.emplace(key, std::move(choices)).first->second;
  }

  void add_point(size_t p) {
    const Config& config = sweep_.points[p].config;
    PointPlan point;
    point.point = p;
    point.steps = steps_of(config);
    choices_.push_back(&choices_of(config));
    if (choices_[p]->at(0) == nullptr) point.refused = choices_[p]->why();
    if (point.steps == 0) {
      point.refused =
          join("its length is ", number_text(config.train.epochs), " epochs of ", config.data.path,
               ", which is not there: build it, or give --set "
               "train.epochs=0 --set train.steps=N");
    }
    plan_.points.push_back(std::move(point));
    if (plan_.points[p].planned()) take(p, 0);
  }

  // Plans a point's runs on a number of ranks.
  void take(size_t p, size_t index) {
    const Choice &choice = *choices_[p]->at(index), &fewest = *choices_[p]->at(0);
    const int host = plan_.cluster.ranks_per_host;
    PointPlan& point = plan_.points[p];
    point.ranks = choice.ranks;
    point.fewest = fewest.ranks;
    point.at_once = choice.ranks <= host ? host / choice.ranks : 0;
    point.nodes = choice.ranks <= host ? 1 : choice.ranks / host;
    point.layout = choice.layout;
    point.step_seconds = choice.step_seconds;
    point.hours = choice.step_seconds * static_cast<double>(point.steps) / 3600;
    point.rank_hours = point.hours * choice.ranks;
    point.efficiency = choice.rate() / fewest.rate();
    point.memory_bytes = choice.memory_bytes;
    point.device_memory = choice.device_memory;
  }

  // Of the runs that remain, by their places in `runs_`.
  [[nodiscard]] std::vector<RunSlot> scheduled() const {
    std::vector<RunLoad> loads;
    for (const size_t r : runs_) loads.push_back({point_of(r).ranks, point_of(r).hours});
    return list_schedule(loads, plan_.cluster);
  }

  // Gives the runs that end last more ranks, one number after another, and keeps what ends first.
  void widen_last() {
    std::vector<size_t> taken(plan_.points.size(), 0);
    std::vector<size_t> best = taken;
    double finish = 0;
    for (bool first = true; !runs_.empty(); first = false) {
      const std::vector<RunSlot> slots = scheduled();
      const double end = finish_of(slots);
      constexpr double kSooner = 1 - 1e-9;
      if (first || end < kSooner * finish) {
        finish = end;
        best = taken;
      }
      const RunSlot& last = *std::ranges::max_element(slots, {}, &RunSlot::end);
      const size_t p = sweep_.runs[runs_[last.run]].point;
      if (choices_[p]->at(taken[p] + 1) == nullptr) break;
      take(p, ++taken[p]);
    }
    for (size_t p = 0; p < best.size(); ++p) {
      if (plan_.points[p].planned()) take(p, best[p]);
    }
  }

  void fill_totals() {
    plan_.schedule = scheduled();
    for (RunSlot& slot : plan_.schedule) {
      slot.run = runs_[slot.run];
      plan_.rank_hours += point_of(slot.run).rank_hours;
    }
    plan_.finish = finish_of(plan_.schedule);
  }

  const Sweep& sweep_;
  const Machine& machine_;
  const SweepPlanOptions& options_;
  SweepPlan plan_;
  std::map<std::string, Choices> by_cost_;
  std::vector<Choices*> choices_;  // by point
  std::vector<size_t> runs_;       // that remain and are planned
};

}  // namespace

double SweepPlan::busy() const { return finish > 0 ? rank_hours / (finish * cluster.ranks()) : 0; }

SweepPlan plan_sweep(const Sweep& sweep, const Cluster& cluster, const Machine& machine,
                     const SweepPlanOptions& options,
                     const std::function<void(size_t, size_t)>& progress) {
  return SweepPlanner(sweep, cluster, machine, options).run(progress);
}

}  // namespace anabranch
