// The toy of cMoLLM's paper: clusters that no linear classifier separates, and a mixture of linear
// streams does.
//
//   x = (-c, 0, 0) +- delta w_1 + sigma n   or   (c, 0, 0) +- delta w_2 + sigma n
//   w_i = cos(theta0 / 2) e_2 +- sin(theta0 / 2) e_3,   the label is the sign before delta
//
//   dense   z = w x + b
//   mixed   z = sum_k g_k (K_k x + b_k),   g = softmax(W_g x + b_g)
//   loss    mean logistic loss of z, plus alpha N sum_k p_k^2, p the mean of g over the batch
//
// The four clusters are equally likely. At theta0 = 180 degrees they are XOR. Below, a plane
// between w_1 and w_2 errs with Phi(-(delta / sigma) cos(theta0 / 2)), which vanishes with sigma.
//
// Source: the cMoLLM paper, Appendix B.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/nn/layers.h"
#include "runtime/toy/clusters_config.h"

namespace anabranch {

inline constexpr int64_t kClusterDims = 3;

struct ClusterPoints {
  Tensor x;       // [M, 3] float32
  Tensor labels;  // [M, 1] uint8, 0 or 1
};

// The centre of the clusters of a label (0 or 1) at a site (0 or 1).
std::array<double, kClusterDims> cluster_centre(const ClusterDataKeys& keys, int64_t site,
                                                int64_t label);

// Points i = 0, 1, ... of a key, each a function of the key and i alone.
ClusterPoints make_clusters(const ClusterDataKeys& keys, int64_t count, uint64_t key);

// The errors of the best classifier, which is known if the sites are far apart, and of the plane
// between the two directions.
double bayes_error(const ClusterDataKeys& keys);
double bisector_error(const ClusterDataKeys& keys);

// Classifies points: by one linear map, or by streams of them, mixed.
class PointClassifier {
 public:
  // streams  0: dense
  PointClassifier(int64_t streams, double init_std, uint64_t seed);

  struct Scores {
    Var logits;  // [M, 1]
    Var gates;   // [M, N]; dense: no value
  };

  // x  [M, 3] float32
  Scores operator()(const Var& x);

  void visit(const auto& f) {
    if (dense_) dense_->visit(f);
    if (router_) router_->visit(f);
    if (streams_) f(*streams_);
    if (stream_bias_) f(*stream_bias_);
  }

  // Trained numbers, and multiply-adds of a point.
  [[nodiscard]] int64_t parameters();
  [[nodiscard]] int64_t macs() const;

  [[nodiscard]] int64_t streams() const { return router_ ? router_->weight.shape[0] : 0; }

 private:
  std::optional<Linear> dense_, router_;
  std::optional<Param> streams_, stream_bias_;  // [N, 1, 3] and [N, 1]
};

// The share of points on the wrong side.
double error_of(PointClassifier& classifier, const ClusterPoints& points);

// Trains by Adam on batches that depend on the key alone. Returns the logistic loss of the last
// batch. Throws Error (internal) if it is not finite.
double train_classifier(PointClassifier& classifier, const ClusterPoints& points,
                        const ClustersConfig& config, uint64_t key);

// What one classifier came to, over the seeds.
struct ClassifierResult {
  int64_t parameters = 0, macs = 0;
  std::vector<double> train_errors, test_errors, losses;
  std::unique_ptr<PointClassifier> first;  // of the first seed, trained
};

struct ClustersResult {
  ClusterPoints test;  // of the first seed
  ClassifierResult dense, mixed;
};

// Trains both classifiers for every seed, on the same points and batches.
//
//   progress  told the seeds done; may be empty
ClustersResult run_clusters(const ClustersConfig& config,
                            const std::function<void(int64_t)>& progress = {});

// A range of test errors to compare with.
struct ErrorRange {
  double low, high;
  bool required;  // every seed is to be in it; else what five seeds gave elsewhere
};

// What is known of a configuration's classifiers; nothing if it differs from the toy's own in more
// than seeds, angle and sigma.
std::optional<ErrorRange> known_range(const ClustersConfig& config, bool mixed);

// Whether all seeds' test errors are in a range.
bool within(const ClassifierResult& result, const ErrorRange& range);

}  // namespace anabranch
