#include "runtime/planner/step_time.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/division.h"
#include "parallel/stream_region.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {
namespace {

// Forward and backward of flash attention: 2 products, and 5.
constexpr double kAttentionWork = 3.5;
// Times that what a forward keeps is read or written in a step, outside of products.
constexpr double kTouches = 4;

double real(int64_t n) { return static_cast<double>(n); }

bool of_streams(const Product& p) { return p.name == "streams"; }

bool of_experts(const Product& p) { return p.groups > 1 || p.name.rfind("experts", 0) == 0; }

// A product as the fullest rank of a model group has it: fewer matrices, more rows of each.
Product spread(Product p, const Layout& layout, int64_t streams, int64_t experts) {
  const int m = layout.mesh.model;
  if (m == 1) return p;
  if (of_streams(p) && layout.has_streams) {
    p.rows *= m;
    if (layout.streams == StreamLayout::kSlice) {
      p.out /= m;
    } else {
      p.count = p.count / streams * Division{streams, m}.count(0);
    }
  } else if (p.name == "feed-forward out" && layout.has_streams &&
             layout.streams == StreamLayout::kSlice) {
    p.rows *= m;
    p.in /= m;
  } else if (of_experts(p)) {
    const int64_t here = Division{experts, m}.count(0);
    if (p.groups > 1) {
      p.rows = p.rows * m * here / experts;
      p.groups = here;
    } else {
      p.rows *= m;
      p.count = p.count / experts * here;
    }
  }
  return p;
}

// Rows of copies of the input on the fullest rank, over those of as many sequences alone.
double copies_share(const Layout& layout, int64_t copies) {
  const int m = layout.mesh.model;
  return real(Division{copies, m}.count(0) * m) / real(copies);
}

// The same of a model that runs copies of its input: fewer of them, of the rows of all ranks. They
// are weighed and merged at home, where the head is.
Product spread_copies(Product p, const Layout& layout, int64_t copies) {
  const int m = layout.mesh.model;
  const bool home = p.role == ProductRole::kHead || p.name.rfind("merge", 0) == 0;
  if (m == 1 || copies == 1 || home) return p;
  if (p.role == ProductRole::kFrontEnd) {  // matrices of each copy
    p.rows *= m;
    p.count = p.count / copies * Division{copies, m}.count(0);
  } else {
    p.rows = std::llround(real(p.rows) * copies_share(layout, copies));
  }
  return p;
}

// Seconds of one direction of all calls.
double direction_seconds(const Product& p, double b, double a, bool weights, double flop_rate,
                         double memory_rate) {
  const double flops = 2 * p.macs();
  const double matrices = real(p.groups * p.in * p.out);
  const double bytes = real(p.rows * (p.in + p.out)) * b + matrices * (weights ? 2 * a : b);
  return std::max(flops / flop_rate, real(p.count) * bytes / memory_rate);
}

double sum_of(const std::vector<TimedTransfer>& all, Moment moment) {
  double seconds = 0;
  for (const TimedTransfer& t : all) seconds += t.what.moment == moment ? t.seconds : 0;
  return seconds;
}

double longest_call(const std::vector<TimedTransfer>& all, Moment moment) {
  double seconds = 0;
  for (const TimedTransfer& t : all) {
    if (t.what.moment == moment) seconds = std::max(seconds, t.seconds / t.what.calls);
  }
  return seconds;
}

// Of the reduction of what backward completes last, which starts when backward ends.
double last_bucket(const std::vector<TimedTransfer>& all, const WeightBytes& weights) {
  double seconds = longest_call(all, Moment::kGradients);
  for (const TimedTransfer& t : all) {
    if (t.what.moment != Moment::kGradients) continue;
    const ReducedElements& n = t.what.axis == MeshAxis::kAll ? weights.all : weights.data;
    if (n.count > 0) seconds = std::max(seconds, t.seconds * n.last / n.count);
  }
  return seconds;
}

}  // namespace

ComputeSeconds compute_seconds(const Products& products, const ActivationBytes& activations,
                               const Config& config, const Layout& layout, const Place& place) {
  const ModelConfig& model = config.model;
  const int64_t copies = input_copies(model);
  const int64_t streams = model.cmollm.streams;
  const int64_t experts =
      model.type == ModelType::kKappaMoe ? model.kappa.experts : std::ssize(model.moep.windows);
  const double call = place.machine.device.call_seconds.value;
  const double memory = place.machine.memory_rate(place.ranks_per_host);
  const auto rate = [&](DType type) {
    return place.machine.product_rate(type, place.ranks_per_host);
  };
  const DType wide = accumulator_of(place.type);
  const auto b = real(static_cast<int64_t>(size_of(place.type)));
  const auto a = real(static_cast<int64_t>(size_of(wide)));
  ComputeSeconds seconds;
  seconds.chunks = real(chunk_count(config.train.micro_batch * model.context));
  double products_forward = 0, logits = 0;
  for (const Product& whole : products.linear) {
    const Product p = spread_copies(spread(whole, layout, streams, experts), layout, copies);
    const double speed = rate(p.wide ? wide : place.type), calls = real(p.count) * call;
    const double once = direction_seconds(p, b, a, false, speed, memory);
    const double all = 2 * once + direction_seconds(p, b, a, true, speed, memory) + 3 * calls;
    products_forward += once + calls;
    seconds.products += all;
    if (of_streams(p)) seconds.streams += all;
    if (p.role != ProductRole::kHead) continue;
    const double elements = real(p.rows * p.out);
    logits += place.machine.softmax_seconds(elements, elements * a, place.ranks_per_host);
  }
  const double attention = place.machine.attention_rate(place.type, place.ranks_per_host);
  double attention_forward = 0;
  for (const AttentionProduct& p : products.attention) {
    const double macs = p.macs() * (copies > 1 ? copies_share(layout, copies) : 1);
    attention_forward += 2 * macs / attention + real(p.count) * call;
  }
  seconds.attention = kAttentionWork * attention_forward;
  const double touched = kTouches * activations.forwarded / memory;
  seconds.rest = touched + logits;
  // The head makes its gradients in the forward.
  seconds.forward = products_forward + attention_forward + touched / 3 + logits;
  if (model.recompute) {  // all of the forward but the head, again
    seconds.products += products_forward;
    seconds.attention += attention_forward;
    seconds.rest += touched / 3;
  }
  return seconds;
}

double optimizer_seconds(const WeightBytes& weights, const Place& place) {
  const double memory = place.machine.memory_rate(place.ranks_per_host);
  const double rate = place.machine.product_rate(place.type, place.ranks_per_host);
  return weights.update_bytes / memory + weights.polar_flops / rate;
}

std::vector<TimedTransfer> timed(const std::vector<Transfer>& all, const Layout& layout,
                                 const Cluster& cluster, const Machine& machine) {
  std::vector<TimedTransfer> list;
  for (const Transfer& what : all) {
    const Placement on = placement(layout, cluster, what.axis);
    list.push_back({what, on, what.calls * what.received(on), what.calls * what.from_network(on),
                    what.calls * seconds_of(what, on, machine)});
  }
  return list;
}

void add_waiting(StepSeconds& step, const std::vector<TimedTransfer>& transfers,
                 const ComputeSeconds& compute, const WeightBytes& weights, int64_t accumulation,
                 double overlap) {
  const auto left = [&](double seconds, double behind, double least) {
    return std::max(seconds - overlap * behind, std::min(least, seconds));
  };
  step.gradients = left(sum_of(transfers, Moment::kGradients), compute.backward(),
                        last_bucket(transfers, weights)) +
                   left(sum_of(transfers, Moment::kWeights), compute.forward,
                        longest_call(transfers, Moment::kWeights));
  const double streams = sum_of(transfers, Moment::kStreams);
  // Of the chunks of a region one has nothing to hide behind.
  step.regions =
      left(streams, compute.streams * real(accumulation) * (compute.chunks - 1) / compute.chunks,
           streams / compute.chunks) +
      sum_of(transfers, Moment::kExperts);
  step.control = sum_of(transfers, Moment::kControl);
}

}  // namespace anabranch
