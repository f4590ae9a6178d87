#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "launch/sweep_verbs.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/sweep/run_state.h"
#include "runtime/sweep/sweep_directory.h"
#include "runtime/sweep/sweep_plan.h"

namespace anabranch {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kGib = 0x1p30;

struct SweepPlanWish {
  std::string file, machine;
  SweepOptions options;
  SweepPlanOptions choice;
  Cluster cluster;
  bool json = false;
};

// In so many hours, as people of this place say it.
std::string clock_text(double hours, const char* form, bool local) {
  const auto seconds = std::chrono::seconds(static_cast<int64_t>(hours * 3600));
  const auto when =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + seconds);
  std::tm fields{};
  if (local) {
    localtime_r(&when, &fields);
  } else {
    gmtime_r(&when, &fields);
  }
  std::array<char, 64> text{};
  const size_t length = std::strftime(text.data(), text.size(), form, &fields);
  return {text.data(), length};
}

// "3 h 20 min", and days where there are many.
std::string hours_text(double hours) {
  if (hours >= 48) return fmt::format("{:.1f} days", hours / 24);
  return hours >= 1 ? fmt::format("{:.1f} h", hours) : fmt::format("{:.1f} min", 60 * hours);
}

const char* unit_of(const SweepPlan& plan) { return plan.on_gpu ? "GPU-hours" : "rank-hours"; }

std::string share_text(const PointPlan& p) {
  if (p.at_once > 0) return fmt::format("{} a node", p.at_once);
  return fmt::format("{} nodes", p.nodes);
}

void print_points(const Sweep& sweep, const SweepPlan& plan) {
  size_t width = 5;
  for (const SweepPoint& point : sweep.points) width = std::max(width, point.id.size());
  std::cout << fmt::format("{:<{}}{:>6}{:>7}{:>10}{:>12}{:>10}{:>11}{:>9}{:>8}  {}\n", "point",
                           width, "runs", "ranks", "at once", "step ms", "hours", unit_of(plan),
                           "GiB", "free", "layout");
  for (const PointPlan& p : plan.points) {
    if (!p.planned()) continue;
    std::cout << fmt::format(
        "{:<{}}{:>6}{:>7}{:>10}{:>12.2f}{:>10.4g}{:>11.4g}{:>9.2f}{:>7.0f}%  {}\n",
        sweep.points[p.point].id, width, p.runs, p.ranks, share_text(p), 1e3 * p.step_seconds,
        p.hours, p.rank_hours, p.memory_bytes / kGib, 100 * p.headroom(), p.layout);
  }
}

// Points that have no plan, those of one reason together.
void print_refused(const SweepPlan& plan, const Sweep& sweep) {
  std::vector<std::pair<std::string, std::string>> reasons;
  for (const PointPlan& p : plan.points) {
    if (p.planned()) continue;
    const std::string& id = sweep.points[p.point].id;
    const auto known = std::ranges::find(reasons, p.refused, [](const auto& r) { return r.first; });
    if (known == reasons.end()) {
      reasons.emplace_back(p.refused, id);
    } else {
      known->second += " " + id;
    }
  }
  for (const auto& [reason, ids] : reasons)
    std::cout << "no plan: " << ids << "\n  " << reason << "\n";
}

void print_text(const Sweep& sweep, const SweepPlan& plan) {
  print_points(sweep, plan);
  print_refused(plan, sweep);
  std::cout << fmt::format(
      "{}: {} of {} on {} of {} ranks, {}\n", sweep.name, counted(std::ssize(plan.schedule), "run"),
      counted(std::ssize(plan.points), "point"), counted(plan.cluster.nodes, "node"),
      plan.cluster.ranks_per_host, plan.machine);
  if (plan.runs_left_out > 0) {
    std::cout << counted(static_cast<int64_t>(plan.runs_left_out), "run")
              << " without a plan: left out of these sums\n";
  }
  std::cout << fmt::format("{:.4g} {} in {}, {:.0f}% of the cluster's; started now, done on {}\n",
                           plan.rank_hours, unit_of(plan), hours_text(plan.finish),
                           100 * plan.busy(), clock_text(plan.finish, "%a %e %b %Y %H:%M", true));
}

Json json_of(const Sweep& sweep, const PointPlan& p) {
  Json entry = {{"id", sweep.points[p.point].id}, {"runs", p.runs}};
  if (!p.planned()) {
    entry["refused"] = p.refused;
    return entry;
  }
  entry["ranks"] = p.ranks;
  entry["fewest_ranks"] = p.fewest;
  entry["runs_a_node"] = p.at_once;
  entry["nodes"] = p.nodes;
  entry["layout"] = p.layout;
  entry["steps"] = p.steps;
  entry["step_seconds"] = p.step_seconds;
  entry["hours"] = p.hours;
  entry["rank_hours"] = p.rank_hours;
  entry["efficiency"] = p.efficiency;
  entry["memory_bytes"] = p.memory_bytes;
  entry["device_memory_bytes"] = p.device_memory;
  entry["headroom"] = p.headroom();
  return entry;
}

void print_json(const Sweep& sweep, const SweepPlan& plan) {
  Json document = {{"sweep", sweep.name},
                   {"machine", plan.machine},
                   {"nodes", plan.cluster.nodes},
                   {"ranks_per_node", plan.cluster.ranks_per_host},
                   {"rank_hours", plan.rank_hours},
                   {"finish_hours", plan.finish},
                   {"finish", clock_text(plan.finish, "%Y-%m-%dT%H:%M:%SZ", false)},
                   {"busy", plan.busy()},
                   {"runs_left_out", plan.runs_left_out},
                   {"points", Json::array()},
                   {"schedule", Json::array()}};
  for (const PointPlan& p : plan.points) document["points"].push_back(json_of(sweep, p));
  for (const RunSlot& slot : plan.schedule) {
    document["schedule"].push_back({{"run", sweep.runs[slot.run].id},
                                    {"nodes", slot.nodes},
                                    {"start_hours", slot.start},
                                    {"end_hours", slot.end}});
  }
  std::cout << document.dump(2) << "\n";
}

// The runs that are not done, nor ended for good.
std::vector<size_t> remaining(const Sweep& sweep) {
  const SweepDirectory directory = SweepDirectory::of(sweep.name);
  std::vector<size_t> runs;
  for (size_t r = 0; r < sweep.runs.size(); ++r) {
    const int64_t steps = plan_batch(sweep.points[sweep.runs[r].point].config, 1).steps;
    const RunPhase phase = run_state(directory.run(sweep.runs[r].id), steps).phase;
    if (phase != RunPhase::kDone && phase != RunPhase::kStopped) runs.push_back(r);
  }
  return runs;
}

void plan(const SweepPlanWish& wish) {
  const Sweep sweep = expand_sweep(load_sweep(wish.file), wish.options);
  if (!sweep.unchosen.empty()) std::cerr << "anabranch: warning: " << sweep.unchosen << "\n";
  const Machine machine = load_machine(wish.machine);
  SweepPlanOptions choice = wish.choice;
  choice.remaining = remaining(sweep);
  Progress progress("sweep plan", static_cast<double>(sweep.points.size()), Progress::Unit::kCount);
  const SweepPlan plan = plan_sweep(sweep, wish.cluster, machine, choice, [&](size_t done, size_t) {
    progress.update(static_cast<double>(done));
  });
  if (wish.json) {
    print_json(sweep, plan);
  } else {
    print_text(sweep, plan);
  }
  if (!choice.remaining->empty() && plan.schedule.empty()) {
    throw config_error("no run of ", wish.file, " has a plan: change what the points name");
  }
}

}  // namespace

void add_sweep_plan(CLI::App& verb) {
  auto wish = std::make_shared<SweepPlanWish>();
  CLI::App* sub = verb.add_subcommand(
      "plan",
      "ranks of each point, hours, memory, and when a cluster would be done; runs nothing.\n"
      "A run gets the fewest ranks that fit; small runs share a node. Then, as long as the sweep "
      "ends sooner, the runs that end last get the next number at which a rank does at least 90% "
      "of "
      "what it did with the fewest. Hours are of steps alone.");
  add_sweep_options(*sub, wish->file, wish->options);
  add_whole(*sub, "--nodes", wish->cluster.nodes, {1, 1 << 17}, "hosts");
  add_whole(*sub, "--ranks-per-node", wish->cluster.ranks_per_host, {1, 1024}, "ranks of a host");
  sub->add_option("--machine", wish->machine, "YAML file: configs/machines")->required();
  const auto ranks = [wish](int64_t count) { wish->choice.ranks = static_cast<int>(count); };
  add_whole(*sub, "--ranks", {1, 1 << 20}, "", ranks, "of every run, instead of by the rule");
  add_sweep_vocabulary(*sub, wish->options);
  sub->add_flag("--json", wish->json, "machine-readable");
  sub->callback([wish] { run_alone([&] { plan(*wish); }); });
}

}  // namespace anabranch
