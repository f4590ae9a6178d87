// Tensors for tests: filled, compared, and differentiated by finite differences.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/tape.h"
#include "core/base/philox.h"
#include "tests/support/tolerance.h"

namespace anabranch::test {

// A fixed pseudo-random sequence in [-1, 1), rounded to `type`.
inline Tensor random(Shape shape, uint32_t seed, DType type = DType::kF64) {
  Tensor t(shape, type);
  dispatch(type, [&]<class T>() {
    for (int64_t i = 0; i < t.count(); ++i) {
      const PhiloxBlock word = philox(seed, static_cast<uint64_t>(i));
      t.data<T>()[i] = T(2 * uniform_float(word[0]) - 1);
    }
  });
  return t;
}

inline Tensor full(Shape shape, double value, DType type = DType::kF64) {
  Tensor t(shape, type);
  dispatch(type, [&]<class T>() {
    for (T& v : t.span<T>()) v = T(static_cast<Accumulator<T>>(value));
  });
  return t;
}

// The elements as doubles, whatever the floating type and the device.
inline std::vector<double> values(const Tensor& t) {
  if (t.device().is_cuda()) return values(t.copy_in(nullptr));
  std::vector<double> all;
  dispatch(t.dtype(), [&]<class T>() {
    for (const T& v : t.span<T>())
      all.push_back(static_cast<double>(static_cast<Accumulator<T>>(v)));
  });
  return all;
}

// The same values in another floating type.
inline Tensor cast(const Tensor& t, DType type) {
  Tensor to(t.shape(), type);
  const std::vector<double> from = values(t);
  dispatch(type, [&]<class T>() {
    for (size_t i = 0; i < from.size(); ++i) {
      to.data<T>()[i] = T(static_cast<Accumulator<T>>(from[i]));
    }
  });
  return to;
}

// A parameter that already has its value, as its own master.
inline Param param(const std::string& name, const Tensor& value) {
  Param w(name, value.shape(), Init::constant(0));
  w.value = value;
  w.master = value;
  return w;
}

inline void expect_near(const Tensor& got, const std::vector<double>& want, Tolerance tolerance,
                        const std::string& what) {
  const std::vector<double> all = values(got);
  ASSERT_EQ(all.size(), want.size()) << what;
  for (size_t i = 0; i < all.size(); ++i) {
    const double bound = tolerance.absolute + tolerance.relative * std::abs(want[i]);
    ASSERT_LE(std::abs(all[i] - want[i]), bound)
        << what << "[" << i << "]: got " << all[i] << ", expected " << want[i];
  }
}

// The scalar that gradient checks differentiate: sum_i c_i y_i with fixed pseudo-random c, so that
// every output element matters differently.
inline double weighted_sum(const Tensor& y, uint32_t seed = 99) {
  const std::vector<double> ys = values(y), cs = values(random(y.shape(), seed));
  double sum = 0;
  for (size_t i = 0; i < ys.size(); ++i) sum += ys[i] * cs[i];
  return sum;
}

using OpOfMany = std::function<Var(const std::vector<Var>&)>;

// Checks the gradients of `f` at `xs` and at `params` in float64 by fourth-order differences.
// `f` must give a Var on its arguments' tape, and must give the same value each time.
inline void expect_gradients(const OpOfMany& f, std::vector<Tensor> xs,
                             const std::vector<Param*>& params) {
  Tape tape;
  for (Param* w : params) w->fresh = true;
  std::vector<Var> leaves, constants;
  for (const Tensor& x : xs) leaves.push_back(tape.input(x));
  for (const Tensor& x : xs) constants.emplace_back(x);
  const Var y = f(leaves);
  tape.backward(y, random(y.shape(), 99));

  const auto check = [&](Tensor& t, const Tensor& gradient, const std::string& name) {
    ASSERT_FALSE(gradient.empty()) << name << " has no gradient";
    std::vector<double> want;
    for (int64_t i = 0; i < t.count(); ++i) {
      constexpr double kStep = 1e-3;  // O(h^4) error, far above rounding
      const double kept = t.data<double>()[i];
      const auto at = [&](double step) {
        t.data<double>()[i] = kept + step;
        const double sum = weighted_sum(f(constants).value());
        t.data<double>()[i] = kept;
        return sum;
      };
      want.push_back((8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) /
                     (12 * kStep));
    }
    expect_near(gradient, want, kGradCheck, name);
  };
  for (size_t i = 0; i < xs.size(); ++i) {
    check(xs[i], tape.take_grad(leaves[i]), join("gradient of input ", i));
  }
  for (Param* w : params) check(w->value, w->grad, w->name);
}

inline void expect_gradients(const std::function<Var(const Var&)>& f, const Tensor& x,
                             const std::vector<Param*>& params) {
  expect_gradients([&](const std::vector<Var>& xs) { return f(xs[0]); }, std::vector<Tensor>{x},
                   params);
}

}  // namespace anabranch::test
