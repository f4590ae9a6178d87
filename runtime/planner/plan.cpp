#include "runtime/planner/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/cuda/blas.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/config/validate_deterministic.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

// A figure with few digits, for sentences.
std::string figure(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string milliseconds(double seconds) { return figure(1e3 * seconds) + " ms"; }

struct Part {
  const char* name;
  double StepSeconds::*seconds;
};

constexpr std::array<Part, 7> kParts = {{{"products", &StepSeconds::products},
                                         {"attention", &StepSeconds::attention},
                                         {"memory-bound ops", &StepSeconds::rest},
                                         {"optimizer", &StepSeconds::optimizer},
                                         {"waiting for gradients", &StepSeconds::gradients},
                                         {"waiting for streams and experts", &StepSeconds::regions},
                                         {"control", &StepSeconds::control}}};

// Why `loser` is not the best one: what it does not fit, or what takes it longer.
std::string why_not(const LayoutPlan& loser, const LayoutPlan& best, double memory) {
  if (!loser.fits) {
    const bool even = loser.memory.total() <= memory;
    return "does not fit: needs " + gib(even ? loser.memory.reserved() : loser.memory.total()) +
           " of " + gib(memory) + (even ? ", if all rows meet at one rank's experts" : "");
  }
  const double more = loser.seconds.total() - best.seconds.total();
  const Part* worst = kParts.data();
  for (const Part& part : kParts) {
    const double here = loser.seconds.*part.seconds - best.seconds.*part.seconds;
    if (here > loser.seconds.*worst->seconds - best.seconds.*worst->seconds) worst = &part;
  }
  const double here = loser.seconds.*worst->seconds - best.seconds.*worst->seconds;
  std::string text = figure(100 * more / best.seconds.total()) + "% slower: " + milliseconds(here) +
                     " more of " + worst->name;
  const double bytes = loser.received() - best.received();
  if (bytes > 0) text += ", " + figure(bytes / 1e6) + " MB more received";
  const double saved = best.memory.total() - loser.memory.total();
  if (saved > 0.01 * best.memory.total()) text += "; would save " + gib(saved);
  return text;
}

std::string why_best(const LayoutPlan& best, size_t fitting) {
  if (!best.fits) return "nothing fits; this one is nearest";
  return fitting > 1 ? "fastest of those that fit" : "the only one that fits";
}

void sort_and_explain(std::vector<LayoutPlan>& all, double memory) {
  const auto rank = [](const LayoutPlan& p) {
    return std::pair(p.legal() ? (p.fits ? 0 : 1) : 2,
                     !p.legal() ? 0 : (p.fits ? p.seconds.total() : p.memory.total()));
  };
  std::ranges::stable_sort(all, [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (all.empty() || !all.front().legal()) return;
  const auto fitting = std::ranges::count_if(all, [](const auto& p) { return p.fits; });
  for (LayoutPlan& p : all) {
    if (!p.legal()) continue;
    p.why = &p == &all.front() ? why_best(p, static_cast<size_t>(fitting))
                               : why_not(p, all.front(), memory);
  }
}

void check_hosts(const Cluster& cluster, const Machine& machine) {
  const bool gpu = machine.device.kind == DeviceKind::kGpu;
  if (!gpu || cluster.ranks_per_host <= machine.host.devices.value) return;
  throw config_error(cluster.ranks_per_host, " ranks a host, and ", machine.name, " has ",
                     number_text(machine.host.devices.value), " devices a host: a rank has one");
}

class Planner {
 public:
  Planner(const Config& config, int64_t vocabulary, const Cluster& cluster, const Machine& machine)
      : config_(config),
        vocabulary_(vocabulary),
        cluster_(cluster),
        machine_(machine),
        model_(make_model(config, vocabulary)),
        products_(model_->products(config.train.micro_batch)),
        batch_(plan_batch(config, cluster.ranks())) {}

  Plan run() {
    Plan plan;
    plan.cluster = cluster_;
    plan.machine = machine_.name;
    plan.accumulation = batch_.accumulation;
    plan.micro_batch = config_.train.micro_batch;
    plan.tokens = config_.train.batch_tokens;
    plan.parameters = static_cast<double>(model_->cost().parameters);
    plan.flops = model_->cost().flops_per_token() * static_cast<double>(plan.tokens);
    plan.device_memory = machine_.memory(cluster_.ranks_per_host);
    for (const LayoutChoice& choice : layouts(config_, cluster_)) {
      LayoutPlan p;
      p.layout = choice.layout;
      p.layout.on_gpu = machine_.device.kind == DeviceKind::kGpu;
      p.refused = choice.refused;
      if (p.legal()) fill(p, plan);
      plan.layouts.push_back(std::move(p));
    }
    sort_and_explain(plan.layouts, plan.device_memory);
    return plan;
  }

 private:
  void fill(LayoutPlan& p, const Plan& plan) {
    const WeightBytes weights = weight_bytes(config_, vocabulary_, p.layout);
    p.memory = rank_memory(weights, config_, vocabulary_, p.layout);
    const double host = machine_.device.kind == DeviceKind::kCpu ? p.memory.save : 0;
    p.fits = std::max(p.memory.total(), p.memory.reserved()) + host <= plan.device_memory;
    const DType type = compute_type(config_.train.precision);
    const Place place{machine_, cluster_.ranks_per_host, type};
    const ActivationBytes activations = activation_bytes(config_, vocabulary_, p.layout);
    const ComputeSeconds compute =
        compute_seconds(products_, activations, config_, p.layout, place);
    const auto times = static_cast<double>(batch_.accumulation);
    p.seconds.products = times * compute.products;
    p.seconds.attention = times * compute.attention;
    p.seconds.rest = times * compute.rest;
    p.seconds.optimizer = optimizer_seconds(weights, place);
    p.transfers = timed(transfers(config_, weights, p.layout, batch_.accumulation), p.layout,
                        cluster_, machine_);
    add_waiting(p.seconds, p.transfers, compute, weights, batch_.accumulation,
                machine_.device.overlap.value);
    p.tokens_per_second = static_cast<double>(plan.tokens) / p.seconds.total();
    const double peak = machine_.product_rate(type, cluster_.ranks_per_host) /
                        machine_.device.product_share.value * cluster_.ranks();
    p.mfu = plan.flops / p.seconds.total() / peak;
  }

  const Config& config_;
  int64_t vocabulary_;
  Cluster cluster_;
  const Machine& machine_;
  std::unique_ptr<Model> model_;
  Products products_;
  BatchPlan batch_;
};

}  // namespace

double LayoutPlan::received() const {
  double bytes = 0;
  for (const TimedTransfer& t : transfers) bytes += t.received;
  return bytes;
}

double LayoutPlan::from_network() const {
  double bytes = 0;
  for (const TimedTransfer& t : transfers) bytes += t.from_network;
  return bytes;
}

const LayoutPlan* Plan::best() const {
  return layouts.empty() || !layouts.front().legal() ? nullptr : &layouts.front();
}

RankMemory rank_memory(const WeightBytes& weights, const Config& config, int64_t vocabulary,
                       const Layout& layout) {
  RankMemory memory;
  memory.weights = weights.need.weights - weights.need.masters;
  memory.masters = weights.need.masters;
  memory.gradients = weights.need.gradients;
  memory.moments = weights.need.moments;
  memory.save = weights.need.save;
  if (layout.on_gpu) memory.workspace = cuda::Blas::kWorkspaceBytes;
  const ActivationBytes even = activation_bytes(config, vocabulary, layout);
  memory.activations = even.peak;
  memory.regions = even.regions;
  constexpr double kHolds = 1.05;  // what a bill may be wrong by
  memory.worst = kHolds * activation_bytes(config, vocabulary, layout, RoutingShare::kWorst).peak;
  if (config.train.grad_wire == GradWire::kBf16 && layout.ranks() > 1) {
    memory.wire = weights.here * 2;
  }
  return memory;
}

Plan make_plan(const Config& config, int64_t vocabulary, const Cluster& cluster,
               const Machine& machine) {
  check_hosts(cluster, machine);
  if (is_of_any_layout(config)) {
    throw config_error("train.deterministic is layout, whose sums take other bytes and times than ",
                       "are planned: plan the run with --set train.deterministic=run");
  }
  return Planner(config, vocabulary, cluster, machine).run();
}

}  // namespace anabranch
