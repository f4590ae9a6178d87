// Layers: parameters and the op that reads them, in plain structs.
//
// `visit` calls its argument on each parameter in forward order; names, initialisation,
// checkpoints and optimizer groups all come from it. Tapes point to the parameters, so a layer is
// not moved once it is in use.
#pragma once

#include <optional>
#include <string>

#include "core/autograd/tape.h"
#include "core/nn/init.h"
#include "core/ops/embedding.h"
#include "core/ops/layer_norm.h"
#include "core/ops/linear.h"
#include "core/ops/rms_norm.h"

namespace anabranch {

// y = x W^T + b with W [out, in]. The weight decays, and a matrix optimizer may own it; the bias
// starts at 0 and neither.
struct Linear {
  Param weight;
  std::optional<Param> bias;

  Linear(const std::string& name, int64_t in, int64_t out, bool with_bias, Init init)
      : weight(name + ".weight", {out, in}, init, true) {
    weight.owner = Owner::kMatrix;
    if (with_bias) bias.emplace(name + ".bias", Shape{out}, Init::constant(0));
  }

  Var operator()(const Var& x) { return linear(x, weight, bias ? &*bias : nullptr); }

  void visit(const auto& f) {
    f(weight);
    if (bias) f(*bias);
  }
};

struct LayerNorm {
  Param weight, bias;  // [C], not decayed
  double eps = 1e-5;

  LayerNorm(const std::string& name, int64_t width, double epsilon = 1e-5)
      : weight(name + ".weight", {width}, Init::constant(1)),
        bias(name + ".bias", {width}, Init::constant(0)),
        eps(epsilon) {}

  Var operator()(const Var& x) { return layer_norm(x, weight, bias, eps); }

  // sum = x + delta, norm = (*this)(sum).
  AddNorm add(const Var& x, const Var& delta) {
    return add_layer_norm(x, delta, weight, bias, eps);
  }

  void visit(const auto& f) {
    f(weight);
    f(bias);
  }
};

struct RmsNorm {
  Param weight;  // [C], not decayed
  double eps = 1e-5;

  RmsNorm(const std::string& name, int64_t width, double epsilon = 1e-5)
      : weight(name + ".weight", {width}, Init::constant(1)), eps(epsilon) {}

  Var operator()(const Var& x) { return rms_norm(x, weight, eps); }

  // sum = x + delta, norm = (*this)(sum).
  AddRmsNorm add(const Var& x, const Var& delta) { return add_rms_norm(x, delta, weight, eps); }

  void visit(const auto& f) { f(weight); }
};

// Row ids[n] of a table [V, C]. The table decays.
struct Embedding {
  Param weight;

  Embedding(const std::string& name, int64_t entries, int64_t width, Init init)
      : weight(name + ".weight", {entries, width}, init, true) {}

  Var operator()(Tape* tape, const Tensor& ids) {
    return embedding(tape, ids, weight, {}, nullptr);
  }

  void visit(const auto& f) { f(weight); }
};

}  // namespace anabranch
