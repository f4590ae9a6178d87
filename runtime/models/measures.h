// Figures that the layers of a model add up while they run, and what becomes of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/tensor/tensor.h"
#include "monitoring/metrics.h"

namespace anabranch {

// Sums over the micro-batches of a step, in places that the model lays out for itself. The trainer
// clears them, and adds them up over the ranks before the model reads them. Only training writes,
// and not when a layer runs a second time in backward. With lanes (parallel/lanes.h) each has all
// places, and the first gets their sum. Of a GPU figures add up in its memory, and are read once.
class Measures {
 public:
  // The last `detail` places are left alone in steps that are not reported.
  explicit Measures(size_t places, size_t detail = 0, size_t lanes = 1)
      : sums_(lanes * (places + detail), 0.0),
        places_(places + detail),
        always_(lanes > 1 ? sums_.size() : places) {}

  void add(size_t place, double value) { sums_.at(lane_ * places_ + place) += value; }

  // scale * values, in as many places from this one on. Of any floating type, wherever they are.
  void add(size_t place, const Tensor& values, double scale = 1);

  // Where figures of a GPU add up: [places()] float64 of its memory; zeroed.
  void gather_in(const Tensor& there);

  // Adds what came together there, by now seen.
  void collect(std::span<const double> seen);

  [[nodiscard]] size_t places() const { return places_; }

  [[nodiscard]] double at(size_t place) const { return sums_.at(place); }

  // Those that this step fills, or all of all lanes, one after the other.
  [[nodiscard]] std::span<double> sums() {
    return {sums_.data(), detailed ? sums_.size() : always_};
  }

  // Which lane is added to.
  void set_lane(int lane) { lane_ = static_cast<size_t>(lane); }

  // Whether this step's figures are reported: what costs time is only measured then.
  bool detailed = false;

 private:
  std::vector<double> sums_;
  Tensor there_;  // empty: the model is on a CPU
  size_t places_, always_, lane_ = 0;
};

// One reported figure. The metric says which of layer and part it has; else they are 0.
struct Reading {
  Metric metric;
  int layer = 0;
  int part = 0;  // a stream or an expert
  double value = 0;
};

}  // namespace anabranch
