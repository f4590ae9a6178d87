#include "runtime/toy/clusters.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/autograd/attach_loss.h"
#include "core/base/philox.h"
#include "core/ops/adamw.h"
#include "core/ops/binary_cross_entropy.h"
#include "core/ops/softmax.h"
#include "core/ops/stream_balance.h"
#include "core/ops/stream_linear.h"
#include "core/tensor/element.h"

namespace anabranch {
namespace {

constexpr int64_t kPointsAtATime = 4096;  // of a test

double half_angle(const ClusterDataKeys& keys) { return keys.angle * std::numbers::pi / 360; }

// The normal distribution's probability below -z.
double tail(double z) { return 0.5 * std::erfc(z / std::numbers::sqrt2); }

uint64_t key_of(uint64_t seed, const char* purpose) { return mix_keys(seed, name_key(purpose)); }

ClusterPoints draw_batch(const ClusterPoints& from, int64_t count, uint64_t key, int64_t step) {
  const auto M = static_cast<uint64_t>(from.x.dim(0));
  ClusterPoints batch{Tensor({count, kClusterDims}, DType::kF32), Tensor({count, 1}, DType::kU8)};
  for (int64_t i = 0; i < count; ++i) {
    const PhiloxBlock words = philox(key, static_cast<uint64_t>(i), static_cast<uint64_t>(step));
    const auto row = static_cast<int64_t>((words[0] * M) >> 32U);
    const float* x = from.x.data<float>() + row * kClusterDims;
    std::copy_n(x, kClusterDims, batch.x.data<float>() + i * kClusterDims);
    batch.labels.data<uint8_t>()[i] = from.labels.data<uint8_t>()[row];
  }
  return batch;
}

// Adam's moments of one parameter.
struct Moments {
  Param* param;
  Tensor m, v;
};

void train_both(ClustersResult& result, const ClustersConfig& config, int64_t run) {
  const auto seed = static_cast<uint64_t>(config.seed + run);
  const ClusterDataKeys& d = config.data;
  const ClusterPoints train = make_clusters(d, d.train_points, key_of(seed, "clusters.train"));
  const ClusterPoints test = make_clusters(d, d.test_points, key_of(seed, "clusters.test"));
  if (run == 0) result.test = test;
  for (ClassifierResult* to : {&result.dense, &result.mixed}) {
    const int64_t streams = to == &result.mixed ? config.model.streams : 0;
    auto classifier = std::make_unique<PointClassifier>(streams, config.model.init_std, seed);
    to->losses.push_back(
        train_classifier(*classifier, train, config, key_of(seed, "clusters.batches")));
    to->train_errors.push_back(error_of(*classifier, train));
    to->test_errors.push_back(error_of(*classifier, test));
    to->parameters = classifier->parameters();
    to->macs = classifier->macs();
    if (run == 0) to->first = std::move(classifier);
  }
}

// The sheet's figures, as test errors: thresholds of all seeds, or what five seeds gave.
struct Known {
  double angle, sigma;
  bool mixed;
  ErrorRange range;
};

constexpr std::array<Known, 6> kKnown{{{180, 0.25, false, {0.20, 1, true}},
                                       {180, 0.25, true, {0, 0.01, true}},
                                       {180, 0.5, false, {0.44, 0.70, false}},
                                       {180, 0.5, true, {0.022, 0.0275, false}},
                                       {90, 0.25, false, {0.001, 0.003, false}},
                                       {90, 0.5, false, {0.067, 0.083, false}}}};

}  // namespace

std::array<double, kClusterDims> cluster_centre(const ClusterDataKeys& keys, int64_t site,
                                                int64_t label) {
  const double side = site == 0 ? -1 : 1, sign = label == 0 ? -1 : 1;
  const double along = sign * keys.offset * std::cos(half_angle(keys));
  const double across = sign * keys.offset * std::sin(half_angle(keys));
  return {side * keys.distance, along, -side * across};
}

ClusterPoints make_clusters(const ClusterDataKeys& keys, int64_t count, uint64_t key) {
  ClusterPoints points{Tensor({count, kClusterDims}, DType::kF32), Tensor({count, 1}, DType::kU8)};
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<uint64_t>(i);
    const uint32_t which = philox(key, at, 0)[0] >> 30U;  // one of four
    const int64_t site = which / 2, label = which % 2;
    const PhiloxBlock words = philox(key, at, 1);
    const auto a = normal_pair(words[0], words[1]), b = normal_pair(words[2], words[3]);
    const std::array<double, kClusterDims> noise{a[0], a[1], b[0]};
    const auto centre = cluster_centre(keys, site, label);
    for (size_t c = 0; c < kClusterDims; ++c) {
      points.x.data<float>()[i * kClusterDims + static_cast<int64_t>(c)] =
          static_cast<float>(centre[c] + keys.sigma * noise[c]);
    }
    points.labels.data<uint8_t>()[i] = static_cast<uint8_t>(label);
  }
  return points;
}

double bayes_error(const ClusterDataKeys& keys) { return tail(keys.offset / keys.sigma); }

double bisector_error(const ClusterDataKeys& keys) {
  return tail(keys.offset / keys.sigma * std::cos(half_angle(keys)));
}

PointClassifier::PointClassifier(int64_t streams, double init_std, uint64_t seed) {
  const Init init = Init::normal(static_cast<float>(init_std));
  if (streams == 0) {
    dense_.emplace("dense", kClusterDims, 1, true, init);
  } else {
    router_.emplace("router", kClusterDims, streams, true, init);
    streams_.emplace("streams.weight", Shape{streams, 1, kClusterDims}, init);
    stream_bias_.emplace("streams.bias", Shape{streams, 1}, Init::constant(0));
  }
  visit([seed](Param& w) {
    allocate(w, DType::kF32);
    initialise(w, seed);
  });
}

PointClassifier::Scores PointClassifier::operator()(const Var& x) {
  if (dense_) return {(*dense_)(x), {}};
  const Var g = softmax((*router_)(x));
  return {stream_linear(x, g, *streams_, *stream_bias_), g};
}

int64_t PointClassifier::parameters() {
  int64_t sum = 0;
  visit([&sum](const Param& w) { sum += w.shape.count(); });
  return sum;
}

int64_t PointClassifier::macs() const {
  // Scaling a stream's inputs by its gate is counted, as everywhere, with no multiply-add.
  return dense_ ? kClusterDims : 2 * streams() * kClusterDims;
}

double error_of(PointClassifier& classifier, const ClusterPoints& points) {
  const int64_t M = points.x.dim(0);
  int64_t wrong = 0;
  for (int64_t begin = 0; begin < M; begin += kPointsAtATime) {
    const int64_t count = std::min(kPointsAtATime, M - begin);
    const Tensor x = points.x.view(begin * kClusterDims, {count, kClusterDims});
    const Tensor logits = classifier(x).logits.value();
    for (int64_t i = 0; i < count; ++i) {
      const bool positive = logits.data<float>()[i] > 0;
      wrong += positive != (points.labels.data<uint8_t>()[begin + i] == 1) ? 1 : 0;
    }
  }
  return static_cast<double>(wrong) / static_cast<double>(M);
}

double train_classifier(PointClassifier& classifier, const ClusterPoints& points,
                        const ClustersConfig& config, uint64_t key) {
  const ClusterTrainKeys& keys = config.train;
  std::vector<Moments> all;
  classifier.visit([&all](Param& w) {
    all.push_back({&w, w.master.like("moment"), w.master.like("moment")});
    all.back().m.fill_zero();
    all.back().v.fill_zero();
  });
  double last = 0;
  for (int64_t step = 0; step < keys.steps; ++step) {
    const ClusterPoints batch = draw_batch(points, keys.batch, key, step);
    Tape tape;
    auto [logits, gates] = classifier(tape.input(batch.x));
    if (classifier.streams() > 0) {
      logits = attach_loss(logits, stream_balance(gates, 1), config.model.bal_alpha);
    }
    const Var loss = binary_cross_entropy(logits, batch.labels);
    last = element(loss.value());
    AB_CHECK(std::isfinite(last), "the loss of step ", step + 1, " of the toy is ", last,
             "; a smaller train.lr may help");
    for (const Moments& w : all) w.param->fresh = true;
    tape.backward(loss);
    const AdamwStep adam{keys.lr, keys.beta1, keys.beta2, keys.eps, 0, step + 1};
    for (Moments& w : all) adamw(w.param->master, w.m, w.v, w.param->grad, nullptr, adam);
  }
  return last;
}

ClustersResult run_clusters(const ClustersConfig& config,
                            const std::function<void(int64_t)>& progress) {
  ClustersResult result;
  for (int64_t run = 0; run < config.seeds; ++run) {
    if (progress) progress(run);
    train_both(result, config, run);
  }
  return result;
}

std::optional<ErrorRange> known_range(const ClustersConfig& config, bool mixed) {
  ClustersConfig own;
  own.seed = config.seed;
  own.seeds = config.seeds;
  own.data.angle = config.data.angle;
  own.data.sigma = config.data.sigma;
  if (config != own) return {};
  const auto* found = std::ranges::find_if(kKnown, [&](const Known& k) {
    return k.mixed == mixed && k.angle == config.data.angle && k.sigma == config.data.sigma;
  });
  if (found == kKnown.end()) return {};
  return found->range;
}

bool within(const ClassifierResult& result, const ErrorRange& range) {
  return std::ranges::all_of(result.test_errors,
                             [&](double e) { return e >= range.low && e <= range.high; });
}

}  // namespace anabranch
