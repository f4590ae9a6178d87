#include "runtime/planner/traffic.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "parallel/pool_choice.h"
#include "runtime/config/validate_parallel.h"
#include "runtime/models/registry.h"
#include "runtime/planner/activations.h"

namespace anabranch {
namespace {

constexpr double kControlBytes = 256, kControlCalls = 3;

double real(int64_t n) { return static_cast<double>(n); }

double doublings(int n) { return std::ceil(std::log2(std::max(n, 1))); }

class Sum {
 public:
  Sum(const Config& config, const Layout& layout, int64_t accumulation)
      : config_(config), layout_(layout), times_(real(accumulation)) {
    const DType type = compute_type(config.train.precision);
    b = real(static_cast<int64_t>(size_of(type)));
    a = real(static_cast<int64_t>(size_of(accumulator_of(type))));
    rows = real(config.train.micro_batch * config.model.context);
  }

  // Gradients in buckets, and if state is divided the weights back.
  void reduce(const std::string& what, MeshAxis axis, int ranks, const ReducedElements& n) {
    if (ranks < 2 || n.count == 0) return;
    const double wire = config_.train.grad_wire == GradWire::kBf16 ? 2 : a;
    const double bucket = config_.parallel.bucket_mb * (1 << 20);  // of gradient
    const double calls = std::max(1.0, std::floor(n.count * a / bucket));
    const CollectiveKind kind =
        layout_.zero ? CollectiveKind::kReduceScatterSum : CollectiveKind::kAllReduceSum;
    all.push_back(
        {"gradients " + what, Moment::kGradients, kind, axis, n.count * wire / calls, calls});
    if (!layout_.zero) return;
    all.push_back({"weights " + what, Moment::kWeights, CollectiveKind::kAllGather, axis,
                   n.count * b / calls, calls});
  }

  // Of `layers` layers in every micro-batch, forward ones again where they are recomputed.
  void region(const char* name, Moment moment, CollectiveKind kind, double bytes, double layers,
              bool forward) {
    const double again = forward && config_.model.recompute ? 2 : 1;
    if (bytes > 0 && layers > 0) {
      all.push_back({name, moment, kind, MeshAxis::kModel, bytes, again * layers * times_});
    }
  }

  void streams() {
    const double m = layout_.mesh.model, N = real(config_.model.cmollm.streams);
    const double C = real(config_.model.width), F = real(config_.model.ffn_width);
    const double L = real(config_.model.layers), M = m * rows;
    const bool slice = layout_.streams == StreamLayout::kSlice;
    const double out = slice ? C : F;
    constexpr auto kGather = CollectiveKind::kAllGather;
    constexpr auto kScatter = CollectiveKind::kReduceScatterSum;
    region("inputs of streams", Moment::kStreams, kGather, M * C * b, L, true);
    region("gates", Moment::kStreams, kGather, M * N * a, L, true);
    region("sums of streams", Moment::kStreams, kScatter, M * out * a, L, true);
    region("gradients of sums", Moment::kStreams, kGather, M * out * b, L, false);
    region("gradients of inputs", Moment::kStreams, kScatter, M * C * a, L, false);
    region("gradients of gates", Moment::kStreams, kScatter, M * N * a, L, false);
  }

  // Of a pipeline's spans, or of copies of the whole model.
  void copies(int64_t copies) {
    const ModelConfig& model = config_.model;
    const int64_t span = model.type == ModelType::kCmollm ? model.cmollm.span : 0;
    const double spans = span > 0 ? std::ceil(real(model.layers) / real(span)) : 1;
    const double C = real(model.width), M = layout_.mesh.model * rows;
    const double home = rows * real(copies) * C * b, ids = config_.data.document_mask ? 2 : 1;
    constexpr auto kMoment = Moment::kExperts;
    constexpr auto kGather = CollectiveKind::kAllGather;
    constexpr auto kScatter = CollectiveKind::kReduceScatterSum;
    region("ids to copies", kMoment, kGather, M * 4, ids, false);
    region("rows to copies", kMoment, kGather, M * C * b, spans - 1, false);
    region("results of copies", kMoment, CollectiveKind::kAllToAll, home, spans, false);
    region("gradients of copies' results", kMoment, CollectiveKind::kAllToAll, home, spans, false);
    region("gradients of copies' rows", kMoment, kScatter, M * C * a, spans - 1, false);
  }

  void experts(double layers) {
    const double m = layout_.mesh.model, C = real(config_.model.width);
    const double whole = m / (m - 1);  // of a buffer that is received in part
    const double visits = rows * remote_visits(config_, layout_) * C * b * whole;
    const double slots = rows * experts_of_row(config_.model);
    constexpr auto kKind = CollectiveKind::kAllToAll;
    region("rows to experts", Moment::kExperts, kKind, visits, layers, true);
    region("places of slots", Moment::kExperts, kKind, slots * (4 + a), layers, true);
    region("results of experts", Moment::kExperts, kKind, slots * C * b, layers, true);
    region("gradients of results", Moment::kExperts, kKind, slots * (C * b + a), layers, false);
    region("gradients of rows", Moment::kExperts, kKind, visits, layers, false);
  }

  // Expert choice compares the scores of a whole pool, wherever its experts are.
  void choice() {
    const auto each = static_cast<int64_t>(rows);
    const PoolScores pool{each * layout_.mesh.pool, std::ssize(config_.model.moep.windows),
                          layout_.mesh.pool, accumulator_of(compute_type(config_.train.precision))};
    const double calls = (config_.model.recompute ? 2 : 1) * times_ * real(config_.model.layers);
    const auto add = [&](const char* name, CollectiveKind kind, int64_t bytes, double times) {
      all.push_back({name, Moment::kExperts, kind, MeshAxis::kPool, real(bytes), times});
    };
    constexpr auto kGather = CollectiveKind::kAllGather;
    const int64_t count = size_of(DType::kI64);
    if (pool.method() == PoolMethod::kGather) {
      return add("scores of the pool", kGather, pool.rows * pool.experts * size_of(pool.type),
                 calls);
    }
    add("counts of scores", CollectiveKind::kAllReduceSum,
        count * (pool.experts << pool.digit_bits()), calls * real(pool.digits()));
    add("counts of equal scores", kGather, count * pool.experts * pool.ranks, calls);
  }

  std::vector<Transfer> all;
  double b = 4, a = 4, rows = 0;

 private:
  const Config& config_;
  const Layout& layout_;
  double times_;
};

const LinkFigures& needed(const Machine& machine, LinkLevel level) {
  const LinkFigures* link = machine.link(level);
  if (link != nullptr) return *link;
  throw config_error("machine ", machine.name, " has no link of level ",
                     words_of(level)[static_cast<size_t>(level)],
                     ", and the ranks need one: add it to links");
}

}  // namespace

Placement placement(const Layout& layout, const Cluster& cluster, MeshAxis axis) {
  const int G = cluster.ranks_per_host, model = layout.mesh.model;
  const auto consecutive = [G](int ranks) -> Placement {
    const int per_host = std::min(ranks, G);
    return {ranks, per_host, std::max(G / per_host, 1)};
  };
  switch (axis) {
    case MeshAxis::kModel:
      return consecutive(model);
    case MeshAxis::kPool:
      return consecutive(layout.mesh.pool);
    case MeshAxis::kData:
      return {layout.mesh.data, std::clamp(G / model, 1, layout.mesh.data), std::min(model, G)};
    case MeshAxis::kAll:
      break;
  }
  return consecutive(layout.ranks());
}

double Transfer::received(const Placement& on) const {
  const double share = static_cast<double>(on.ranks - 1) / on.ranks;
  return bytes * share * (kind == CollectiveKind::kAllReduceSum ? 2 : 1);
}

double Transfer::from_network(const Placement& on) const {
  if (on.hosts() < 2) return 0;
  const double share =
      kind == CollectiveKind::kAllToAll
          ? static_cast<double>(on.ranks - on.per_host) / (on.ranks - 1)
          : 1.0 / on.per_host;  // one of a ring's ranks has its neighbour elsewhere
  return received(on) * share;
}

std::vector<Transfer> transfers(const Config& config, const WeightBytes& weights,
                                const Layout& layout, int64_t accumulation) {
  Sum sum(config, layout, accumulation);
  sum.reduce("of all ranks", MeshAxis::kAll, layout.ranks(), weights.all);
  sum.reduce("of data ranks", MeshAxis::kData, layout.mesh.data, weights.data);
  const ModelConfig& model = config.model;
  if (layout.has_streams) sum.streams();
  if (layout.mesh.model > 1 && input_copies(model) > 1) sum.copies(input_copies(model));
  const bool chooses =
      model.type == ModelType::kMoepMsit && model.moep.select != Selection::kTokenChoice;
  if (layout.mesh.pool > 1 && chooses) sum.choice();
  if (layout.mesh.model > 1 && model.type == ModelType::kMoepMsit) sum.experts(real(model.layers));
  if (layout.mesh.model > 1 && model.type == ModelType::kKappaMoe) {
    sum.experts(real(std::ranges::count(mixture_layers(model.kappa, model.layers), true)));
  }
  if (layout.ranks() > 1) {
    sum.all.push_back({"control", Moment::kControl, CollectiveKind::kAllReduceSum, MeshAxis::kAll,
                       kControlBytes, kControlCalls});
  }
  return sum.all;
}

double seconds_of(const Transfer& transfer, const Placement& on, const Machine& machine) {
  if (on.ranks < 2) return 0;
  const bool both_ways = transfer.kind == CollectiveKind::kAllReduceSum;
  const bool all_to_all = transfer.kind == CollectiveKind::kAllToAll;
  const double received = transfer.received(on);
  double latency = 0, seconds = 0;
  if (on.per_host > 1) {
    const LinkFigures& host = needed(machine, LinkLevel::kHost);
    const double here = all_to_all ? received - transfer.from_network(on) : received;
    seconds = here / host.bandwidth(transfer.bytes);
    latency += host.latency.value * doublings(on.per_host);
  }
  if (on.hosts() > 1) {
    const LinkFigures& network = needed(machine, LinkLevel::kNetwork);
    // What enters a host: once around a ring, and of an all-to-all for each of its ranks.
    const double entering = all_to_all ? on.per_host * transfer.from_network(on) : received;
    // GPUs have links of their own; the processes of a CPU host share one.
    const double share = machine.device.kind == DeviceKind::kGpu
                             ? std::min(1.0, on.per_host / machine.host.devices.value)
                             : 1.0 / on.groups;
    seconds = std::max(seconds, entering / (network.bandwidth(transfer.bytes) * share));
    latency += network.latency.value * doublings(on.hosts());
  }
  return seconds + latency * (both_ways ? 2 : 1);
}

}  // namespace anabranch
