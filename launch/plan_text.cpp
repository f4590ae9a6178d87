#include "launch/plan_text.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/config/number.h"

namespace anabranch {
namespace {

using Json = nlohmann::ordered_json;
using Figures = std::vector<std::pair<std::string, double>>;

constexpr double kGib = 0x1p30;

Figures figures_of(const StepSeconds& s) {
  return {{"products", s.products},   {"attention", s.attention},
          {"memory_bound", s.rest},   {"optimizer", s.optimizer},
          {"gradients", s.gradients}, {"streams_and_experts", s.regions},
          {"control", s.control}};
}

Figures figures_of(const RankMemory& m) {
  return {{"weights", m.weights},         {"masters", m.masters},
          {"gradients", m.gradients},     {"moments", m.moments},
          {"activations", m.activations}, {"activations_for_others", m.regions},
          {"activations_worst", m.worst}, {"wire", m.wire},
          {"workspace", m.workspace},     {"save", m.save}};
}

Json json_of(const Figures& figures) {
  Json object;
  for (const auto& [name, value] : figures) object[name] = value;
  return object;
}

Json json_of(const TimedTransfer& t) {
  return {{"name", t.what.name},
          {"collective", name_of(t.what.kind)},
          {"ranks", t.on.ranks},
          {"calls", t.what.calls},
          {"bytes", t.what.bytes},
          {"received", t.received},
          {"from_network", t.from_network},
          {"seconds", t.seconds}};
}

Json json_of(const LayoutPlan& p) {
  const Layout& layout = p.layout;
  Json object = {{"name", layout.name()},      {"data", layout.mesh.data},
                 {"model", layout.mesh.model}, {"pool", layout.mesh.pool},
                 {"stream_layout", nullptr},   {"zero", layout.zero ? 1 : 0},
                 {"legal", p.legal()}};
  if (layout.has_streams) {
    object["stream_layout"] = layout.streams == StreamLayout::kSlice ? "slice" : "gather";
  }
  if (!p.legal()) {
    object["refused"] = p.refused;
    return object;
  }
  object["fits"] = p.fits;
  object["why"] = p.why;
  object["step_seconds"] = p.seconds.total();
  object["tokens_per_second"] = p.tokens_per_second;
  object["mfu"] = p.mfu;
  object["seconds"] = json_of(figures_of(p.seconds));
  object["memory_bytes"] = p.memory.total();
  object["memory_reserved_bytes"] = p.memory.reserved();
  object["memory"] = json_of(figures_of(p.memory));
  object["received_bytes"] = p.received();
  object["network_bytes"] = p.from_network();
  for (const TimedTransfer& t : p.transfers) object["transfers"].push_back(json_of(t));
  return object;
}

std::string layouts_text(const Plan& plan) {
  std::string text =
      fmt::format("{:<40}{:>11}{:>13}{:>7}{:>10}{:>10}{:>13}{:>13}\n", "layout", "step ms",
                  "tokens/s", "MFU %", "GiB", "reserved", "received MB", "network MB");
  bool illegal = false;
  for (const LayoutPlan& p : plan.layouts) {
    if (!p.legal()) {
      text += fmt::format("{}model {:<34}{}\n", illegal ? "" : "not legal\n", p.layout.mesh.model,
                          p.refused);
      illegal = true;
      continue;
    }
    text += fmt::format(
        "{:<40}{:>11.2f}{:>13.0f}{:>7.1f}{:>10.2f}{:>10.2f}{:>13.1f}{:>13.1f}\n    {}\n",
        p.layout.name(), 1e3 * p.seconds.total(), p.tokens_per_second, 100 * p.mfu,
        p.memory.total() / kGib, p.memory.reserved() / kGib, p.received() / 1e6,
        p.from_network() / 1e6, p.why);
  }
  return text;
}

std::string best_text(const LayoutPlan& best) {
  std::string text = fmt::format("\n{}: where its step goes\n", best.layout.name());
  for (const auto& [name, seconds] : figures_of(best.seconds)) {
    text += fmt::format("  {:<22}{:>11.3f} ms{:>7.1f}%\n", name, 1e3 * seconds,
                        100 * seconds / best.seconds.total());
  }
  text += "its memory, of the fullest rank\n";
  for (const auto& [name, bytes] : figures_of(best.memory)) {
    text += fmt::format("  {:<24}{:>9.3f} GiB\n", name, bytes / kGib);
  }
  if (best.transfers.empty()) return text;
  text +=
      fmt::format("what a rank receives in a step\n  {:<26}{:<20}{:>6}{:>8}{:>12}{:>12}{:>11}\n",
                  "", "collective", "ranks", "calls", "MB", "network MB", "ms");
  for (const TimedTransfer& t : best.transfers) {
    text += fmt::format("  {:<26}{:<20}{:>6}{:>8.0f}{:>12.3f}{:>12.3f}{:>11.3f}\n", t.what.name,
                        name_of(t.what.kind), t.on.ranks, t.what.calls, t.received / 1e6,
                        t.from_network / 1e6, 1e3 * t.seconds);
  }
  return text;
}

Json json_of(const ScalePoint& p) {
  Json object = {{"ranks", p.cluster.ranks()},
                 {"nodes", p.cluster.nodes},
                 {"batch_tokens", p.batch_tokens},
                 {"micro_batch", p.micro_batch}};
  if (!p.planned()) {
    object["refused"] = p.refused;
    return object;
  }
  object["layout"] = p.layout;
  object["step_seconds"] = p.seconds;
  object["waited_seconds"] = p.waited;
  object["tokens_per_second"] = p.tokens_per_second;
  object["efficiency"] = p.efficiency;
  return object;
}

std::string curve_text(const std::string& title, const std::vector<ScalePoint>& curve) {
  std::string text =
      fmt::format("{}\n{:>7}{:>7}{:>12}{:>7}{:>11}{:>11}{:>14}{:>8}  {}\n", title, "ranks", "hosts",
                  "tokens", "micro", "step ms", "waited ms", "tokens/s", "eff. %", "layout");
  for (const ScalePoint& p : curve) {
    text += fmt::format("{:>7}{:>7}{:>12}{:>7}", p.cluster.ranks(), p.cluster.nodes, p.batch_tokens,
                        p.micro_batch);
    if (!p.planned()) {
      text += "  " + p.refused + "\n";
      continue;
    }
    text += fmt::format("{:>11.2f}{:>11.2f}{:>14.0f}{:>8.1f}  {}\n", 1e3 * p.seconds,
                        1e3 * p.waited, p.tokens_per_second, 100 * p.efficiency, p.layout);
  }
  return text;
}

}  // namespace

std::string plan_text(const Plan& plan) {
  std::string text = fmt::format(
      "{}, {} a host, {}: {:.1f} GiB a rank\n{:.1f} M parameters; {} a step, {} of {} a rank\n\n",
      counted(plan.cluster.nodes, "host"), counted(plan.cluster.ranks_per_host, "rank"),
      plan.machine, plan.device_memory / kGib, plan.parameters / 1e6, counted(plan.tokens, "token"),
      plan.accumulation == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", plan.accumulation),
      counted(plan.micro_batch, "sequence"));
  text += layouts_text(plan);
  if (plan.best() != nullptr) text += best_text(*plan.best());
  return text;
}

std::string plan_json(const Plan& plan) {
  Json document = {{"machine", plan.machine},
                   {"nodes", plan.cluster.nodes},
                   {"ranks_per_node", plan.cluster.ranks_per_host},
                   {"parameters", plan.parameters},
                   {"tokens_per_step", plan.tokens},
                   {"micro_batch", plan.micro_batch},
                   {"accumulation", plan.accumulation},
                   {"flop_per_step", plan.flops},
                   {"device_memory_bytes", plan.device_memory},
                   {"layouts", Json::array()}};
  for (const LayoutPlan& p : plan.layouts) document["layouts"].push_back(json_of(p));
  return document.dump(2) + "\n";
}

std::string scale_text(const ScaleCurves& curves) {
  return curve_text("weak: as many tokens of a step a rank", curves.weak) + "\n" +
         curve_text("strong: as many tokens a step", curves.strong);
}

std::string scale_json(const ScaleCurves& curves) {
  Json document = {{"weak", Json::array()}, {"strong", Json::array()}};
  for (const ScalePoint& p : curves.weak) document["weak"].push_back(json_of(p));
  for (const ScalePoint& p : curves.strong) document["strong"].push_back(json_of(p));
  return document.dump(2) + "\n";
}

}  // namespace anabranch
