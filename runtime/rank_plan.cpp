#include "runtime/rank_plan.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "runtime/config/number.h"
#include "runtime/config/validate_parallel.h"
#include "runtime/planned_part.h"

namespace anabranch {
namespace {

// Hosts, their ranks, and the order that makes them neighbours.
void place(RankPlan& plan, const std::vector<RankPlace>& places) {
  std::vector<std::vector<int>> ranks;
  for (size_t r = 0; r < places.size(); ++r) {
    const auto found = std::ranges::find(plan.hosts, places[r].host);
    const auto host = static_cast<size_t>(found - plan.hosts.begin());
    if (found == plan.hosts.end()) {
      plan.hosts.push_back(places[r].host);
      ranks.emplace_back();
    }
    ranks[host].push_back(static_cast<int>(r));
  }
  for (const std::vector<int>& of_host : ranks) {
    plan.ranks_of_host.push_back(static_cast<int>(of_host.size()));
    plan.order.insert(plan.order.end(), of_host.begin(), of_host.end());
  }
  plan.why_order = plan.reordered() ? "ranks of a host are made neighbours"
                                    : "as launched: ranks of a host are neighbours";
  const auto [least, most] = std::ranges::minmax(places, {}, &RankPlace::threads);
  plan.least_threads = least.threads;
  plan.most_threads = most.threads;
}

// The memory of each host: what its ranks agree is there at least.
std::vector<double> memory_of(const RankPlan& plan, const std::vector<RankPlace>& places) {
  std::vector<double> memory;
  for (const std::string& host : plan.hosts) {
    double least = -1;
    for (const RankPlace& p : places) {
      if (p.host == host && (least < 0 || p.memory < least)) least = p.memory;
    }
    memory.push_back(least);
  }
  return memory;
}

// The host that is left with the least by ranks that need `bytes` each.
size_t tightest(const RankPlan& plan, const std::vector<double>& memory, double bytes) {
  size_t worst = 0;
  const auto left = [&](size_t h) { return memory[h] - bytes * plan.ranks_of_host[h]; };
  for (size_t h = 1; h < memory.size(); ++h) {
    if (left(h) < left(worst)) worst = h;
  }
  return worst;
}

bool crosses(const RankPlan& plan, int model) {
  return std::ranges::any_of(plan.ranks_of_host, [&](int ranks) { return ranks % model != 0; });
}

// A value of parallel.model with what it asks of the memory.
struct Choice {
  MeshShape shape;
  MemoryNeed need;
  size_t host = 0;  // the tightest
  bool fits = false, crosses = false;
};

class Chooser {
 public:
  Chooser(const Config& config, const RankPlan& plan, std::vector<double> memory,
          const NeedOf& need)
      : config_(config), plan_(plan), memory_(std::move(memory)), need_(need) {}

  [[nodiscard]] Choice with(int model) const {
    const auto ranks = static_cast<int>(plan_.order.size());
    Choice c;
    c.shape = mesh_shape(ranks, model, pool_sequences(config_.model), config_.train.micro_batch);
    c.need = need_(c.shape);
    c.host = tightest(plan_, memory_, c.need.total());
    c.fits = c.need.total() * plan_.ranks_of_host[c.host] <= memory_[c.host];
    c.crosses = crosses(plan_, model);
    return c;
  }

  // The choice for `auto`; its reason goes into `why`.
  [[nodiscard]] Choice automatic(std::string& why) const {
    const Choice whole = with(1);
    if (whole.fits) {
      why = "auto: the training state of a rank fits, " + figures(whole);
      return whole;
    }
    Choice best = whole;
    for (const int model : legal_model_sizes(config_, static_cast<int>(plan_.order.size()))) {
      const Choice c = with(model);
      const bool better = best.fits ? c.fits && best.crosses && !c.crosses
                                    : c.fits || c.need.total() < best.need.total();
      if (better) best = c;
    }
    why =
        join("auto: 1 does not fit, ", figures(whole), "; with ", best.shape.model, ", ",
             figures(best), best.crosses ? "; none that fits keeps its groups within a host" : "");
    return best;
  }

  // "1.5 GiB each of the 4 ranks on h1, which has 16 GiB".
  [[nodiscard]] std::string figures(const Choice& c) const {
    return join(gib(c.need.total()), " for each of ", counted(plan_.ranks_of_host[c.host], "rank"),
                " on ", plan_.hosts[c.host], ", which has ", gib(memory_[c.host]));
  }

  void require(const Choice& c) const {
    require_memory(c.need, plan_.ranks_of_host[c.host], memory_[c.host]);
  }

  [[nodiscard]] double memory(const Choice& c) const { return memory_[c.host]; }

 private:
  const Config& config_;
  const RankPlan& plan_;
  std::vector<double> memory_;
  const NeedOf& need_;
};

// "h1 4, h2 2"; of many hosts the first and the last.
std::string host_list(const RankPlan& plan) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t h = 0; h < plan.hosts.size(); ++h) {
    const bool shown = h + 1 < kShown || plan.hosts.size() <= kShown || h + 1 == plan.hosts.size();
    if (!shown) continue;
    const bool gap = h >= kShown && plan.hosts.size() > kShown;
    text += join(text.empty() ? "" : ", ", gap ? "..., " : "", plan.hosts[h], " ",
                 plan.ranks_of_host[h]);
  }
  return text;
}

std::string threads_text(const RankPlan& plan) {
  return plan.least_threads == plan.most_threads
             ? join(plan.least_threads, " a rank")
             : join(plan.least_threads, " to ", plan.most_threads, " a rank");
}

std::string device_text(const DevicePlan& devices) {
  std::string text = devices.text();
  for (const std::string& warning : devices.warnings) text += "; " + warning;
  return text;
}

std::string order_text(const RankPlan& plan) {
  constexpr size_t kShown = 64;
  if (!plan.reordered()) return plan.why_order;
  std::string text = plan.why_order + ", launched ones are";
  for (size_t r = 0; r < std::min(plan.order.size(), kShown); ++r) text += join(" ", plan.order[r]);
  return plan.order.size() > kShown ? text + " ..." : text;
}

}  // namespace

bool RankPlan::reordered() const { return !std::ranges::is_sorted(order); }

std::vector<RankPlace> gather_places(Group& world, const RankPlace& mine) {
  const std::vector<std::string> hosts = gather_text(world, mine.host);
  Tensor all({world.size(), 2}, DType::kF64);
  const auto threads = static_cast<double>(mine.threads);
  world.all_gather(all, Tensor::of<double>({1, 2}, {threads, mine.memory})).wait();
  std::vector<RankPlace> places;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const double* of_rank = all.data<double>() + 2 * r;
    places.push_back({hosts[r], static_cast<int>(of_rank[0]), of_rank[1]});
  }
  return places;
}

NeedOf need_of(const Config& config, int64_t vocabulary) {
  return [&config, vocabulary](const MeshShape& shape) {
    return PlannedPart(config, vocabulary, shape).need();
  };
}

RankPlan plan_ranks(const Config& config, const std::vector<RankPlace>& places,
                    const NeedOf& need) {
  const auto ranks = static_cast<int>(places.size());
  check_ranks(config, ranks);
  RankPlan plan;
  place(plan, places);
  const Chooser chooser(config, plan, memory_of(plan, places), need);
  Choice choice;
  if (config.parallel.model.is_auto()) {
    choice = chooser.automatic(plan.why_model);
  } else {
    choice = chooser.with(static_cast<int>(config.parallel.model.value));
    plan.why_model = "as parallel.model says, " + chooser.figures(choice);
  }
  chooser.require(choice);
  plan.shape = choice.shape;
  plan.need = choice.need;
  plan.least_memory = chooser.memory(choice);
  plan.crosses_hosts = choice.crosses;
  if (has_streams(config.model)) {
    plan.stream_layout = std::string(word_of(stream_layout(config, plan.shape.model)));
  } else if (input_copies(config.model) > 1) {
    plan.stream_layout = "whole";
  }
  plan.zero = static_cast<int>(config.parallel.zero);
  plan.batch = plan_batch(config, ranks);
  plan.micro_batch = config.train.micro_batch;
  return plan;
}

Config as_planned(const Config& config, const RankPlan& plan) {
  Config planned = config;
  planned.parallel.model.value = plan.shape.model;
  return planned;
}

std::unique_ptr<Group> training_group(Group& world, const RankPlan& plan) {
  AB_CHECK(std::ssize(plan.order) == world.size(), "a plan of ", plan.order.size(), " ranks for ",
           world.size());
  if (!plan.reordered()) return nullptr;
  const auto found = std::ranges::find(plan.order, world.rank());
  return world.split(0, static_cast<int>(found - plan.order.begin()));
}

std::string plan_table(const RankPlan& plan) {
  const MeshShape& shape = plan.shape;
  const std::vector<std::pair<std::string, std::string>> rows{
      {"ranks", join(plan.order.size(), " on ", counted(std::ssize(plan.hosts), "host"), ": ",
                     host_list(plan))},
      {"order", order_text(plan)},
      {"threads", threads_text(plan)},
      {"device", device_text(plan.devices)},
      {"mesh", join("data ", shape.data, " x model ", shape.model, ", pools on ",
                    counted(shape.pool, "rank"),
                    plan.crosses_hosts ? ", groups of model cross hosts" : "")},
      {"model", join(shape.model, ", ", plan.why_model)},
      {"streams", plan.stream_layout},
      {"zero", join(plan.zero)},
      {"batch", join(batch_text(plan.batch), ", of ", counted(plan.micro_batch, "sequence"))},
      {"state", join(counted(plan.need.parameters, "parameter"), ", ", gib(plan.need.total()),
                     " a rank before activations")}};
  size_t width = 0;
  for (const auto& [name, text] : rows) width = std::max(width, name.size());
  std::string table;
  for (const auto& [name, text] : rows) {
    table += join("  ", name, std::string(width - name.size() + 2, ' '), text, "\n");
  }
  return table;
}

std::string rank_plan_json(const RankPlan& plan) {
  nlohmann::ordered_json json;
  json["ranks"] = plan.order.size();
  json["hosts"] = nlohmann::ordered_json::array();
  for (size_t h = 0; h < plan.hosts.size(); ++h) {
    json["hosts"].push_back({{"name", plan.hosts[h]}, {"ranks", plan.ranks_of_host[h]}});
  }
  json["order"] = plan.order;
  json["why_order"] = plan.why_order;
  json["threads"] = {{"least", plan.least_threads}, {"most", plan.most_threads}};
  json["device"] = {{"kind", plan.devices.of_rank.empty() ? "cpu" : "cuda"},
                    {"why", plan.devices.why},
                    {"of_rank", plan.devices.of_rank},
                    {"warnings", plan.devices.warnings}};
  json["data"] = plan.shape.data;
  json["model"] = plan.shape.model;
  json["why_model"] = plan.why_model;
  json["model_crosses_hosts"] = plan.crosses_hosts;
  json["pool"] = plan.shape.pool;
  json["stream_layout"] = plan.stream_layout;
  json["zero"] = plan.zero;
  json["batch"] = {{"sequences", plan.batch.sequences},
                   {"accumulation", plan.batch.accumulation},
                   {"micro_batch", plan.micro_batch},
                   {"steps", plan.batch.steps}};
  json["parameters_of_a_rank"] = plan.need.parameters;
  json["state_bytes_of_a_rank"] = plan.need.total();
  json["tightest_host_bytes"] = plan.least_memory;
  return json.dump(2) + "\n";
}

}  // namespace anabranch
