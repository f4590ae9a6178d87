// The keys of the toy of clusters: a file of its own kind beside those of runs.
#pragma once

#include <cstdint>

#include "runtime/config/values.h"

namespace anabranch {

// Four clusters in three dimensions: two sites (-c, 0, 0) and (c, 0, 0), two labels at each.
struct ClusterDataKeys {
  double distance = 4, offset = 1, angle = 180, sigma = 0.25;
  int64_t train_points = 2000, test_points = 4000;

  void visit(auto&& f) {
    f("distance", distance, 0.0, 1e3, "c: half the distance between the two sites");
    f("offset", offset, 1e-6, 1e3, "delta: distance of a cluster's centre from its site");
    f("angle", angle, 0.0, 180.0, "theta0: degrees between the sites' directions of labels");
    f("sigma", sigma, 1e-6, 1e3, "standard deviation of a cluster in each dimension");
    f("train_points", train_points, int64_t{1}, int64_t{1} << 20, "points to train on");
    f("test_points", test_points, int64_t{1}, int64_t{1} << 20, "points to test on");
  }

  bool operator==(const ClusterDataKeys&) const = default;
};

struct ClusterModelKeys {
  int64_t streams = 2;
  double init_std = 0.1, bal_alpha = 0.01;

  void visit(auto&& f) {
    f("streams", streams, int64_t{1}, int64_t{64}, "N, linear streams of the mixed classifier");
    f("init_std", init_std, 0.0, 10.0, "standard deviation of first weights; all 0 is a saddle");
    f("bal_alpha", bal_alpha, 0.0, 100.0, "weight of the balance loss");
  }

  bool operator==(const ClusterModelKeys&) const = default;
};

struct ClusterTrainKeys {
  int64_t steps = 600, batch = 64;
  double lr = 0.05, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;

  void visit(auto&& f) {
    f("steps", steps, int64_t{1}, int64_t{1000000}, "updates by Adam");
    f("batch", batch, int64_t{1}, int64_t{65536}, "points of an update, drawn with replacement");
    f("lr", lr, 0.0, 10.0, "learning rate, constant");
    f("beta1", beta1, 0.0, 0.999999, "decay of the first moment");
    f("beta2", beta2, 0.0, 0.999999, "decay of the second moment");
    f("eps", eps, 1e-16, 1.0, "added to the root of the second moment");
  }

  bool operator==(const ClusterTrainKeys&) const = default;
};

struct ClustersConfig {
  int64_t schema = 1, seed = 1, seeds = 5;
  ClusterDataKeys data;
  ClusterModelKeys model;
  ClusterTrainKeys train;

  void visit(auto&& f) {
    f("schema", schema, int64_t{1}, int64_t{1}, "version of these keys");
    f("seed", seed, int64_t{0}, kMaxCount, "the first seed: of points, weights and batches");
    f("seeds", seeds, int64_t{1}, int64_t{1000}, "runs with seeds from it on");
    f("data", data);
    f("model", model);
    f("train", train);
  }

  bool operator==(const ClustersConfig&) const = default;
};

}  // namespace anabranch
