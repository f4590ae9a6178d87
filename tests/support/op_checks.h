// What every op of one input must satisfy, whatever it computes.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/parallel_for.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace anabranch::test {

using Op = std::function<Var(const Var&)>;

// v itself; its backward adds `name` to `order`.
inline Var noted(const Var& v, const char* name, std::vector<std::string>& order) {
  return v.tape()->record(name, v.value(), {}, [&order, v, name](Tape& t, const Tensor& dy) {
    order.emplace_back(name);
    t.give(v, dy);
  });
}

struct OpRun {
  Tensor y, dx;
  std::vector<Tensor> dparams;
};

// Forward and backward of `f` with gradient `dy`, or a fixed pseudo-random one of y's type.
inline OpRun run_op(const Op& f, const Tensor& x, const std::vector<Param*>& params, Tensor dy = {},
                    const TestDevice& device = {"cpu", nullptr}) {
  const ParamsOn there(device, params);
  for (Param* w : params) {
    w->fresh = true;
    w->grad = {};
  }
  Tape tape;
  const Var leaf = tape.input(device.place(x)), y = f(leaf);
  if (dy.empty()) dy = random(y.shape(), 99, y.dtype());
  tape.backward(y, device.place(dy));
  OpRun run{y.value(), tape.take_grad(leaf), {}};
  for (const Param* w : params) run.dparams.push_back(w->grad);
  return run;
}

// Results in `type` on a device against float64 ones of the same (rounded) input on the CPU.
// Parameters have the accumulator's type.
inline void expect_type_agrees(const Op& f, const Tensor& x, const std::vector<Param*>& params,
                               DType type, const TestDevice& device) {
  std::vector<Tensor> kept;
  kept.reserve(params.size());
  for (const Param* w : params) kept.push_back(w->value);
  for (Param* w : params) w->value = cast(w->value, accumulator_of(type));
  const Tensor rounded = cast(x, type);
  const OpRun got = run_op(f, rounded, params, {}, device);
  EXPECT_EQ(got.y.dtype(), type);
  for (Param* w : params) w->value = cast(w->value, DType::kF64);
  const Tensor dy = cast(random(got.y.shape(), 99, type), DType::kF64);
  const OpRun want = run_op(f, cast(rounded, DType::kF64), params, dy);
  expect_near(got.y, values(want.y), op_tolerance(type), device.name + " y");
  expect_near(got.dx, values(want.dx), op_tolerance(type), device.name + " dx");
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(got.dparams[i].dtype(), accumulator_of(type));
    expect_near(got.dparams[i], values(want.dparams[i]), op_tolerance(type),
                device.name + " " + params[i]->name);
  }
  for (size_t i = 0; i < params.size(); ++i) params[i]->value = kept[i];
}

// float32 and bfloat16 results against float64 ones, and a GPU's in all three.
inline void expect_types_agree(const Op& f, const Tensor& x, const std::vector<Param*>& params) {
  for (const TestDevice& device : devices()) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      expect_type_agrees(f, x, params, type, device);
    }
    if (device.pool) expect_type_agrees(f, x, params, DType::kF64, device);
  }
}

// Gradients are added to what is there already: in x from another use, in parameters from another
// micro-batch. All in float64.
inline void expect_accumulates(const Op& f, const Tensor& x, const std::vector<Param*>& params) {
  for (const TestDevice& device : devices()) {
    const OpRun once = run_op(f, x, params, {}, device);
    const Tensor there = device.place(random(x.shape(), 7));
    {
      const ParamsOn placed(device, params);
      Tape tape;
      const Var leaf = tape.input(device.place(x)), y = f(leaf);
      tape.give(leaf, there);
      // The parameters hold the first run's gradient.
      tape.backward(y, device.place(random(y.shape(), 99)));
      std::vector<double> want = values(once.dx);
      const std::vector<double> before = values(there);
      for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
      expect_near(tape.take_grad(leaf), want, op_tolerance(DType::kF64), device.name + " dx");
    }
    expect_near(there, values(random(x.shape(), 7)), kExact, "the gradient that was there");
    const OpRun again = run_op(f, x, params, {}, device);
    for (size_t i = 0; i < params.size(); ++i) {
      std::vector<double> twice = values(again.dparams[i]);
      for (double& v : twice) v *= 2;
      expect_near(once.dparams[i], twice, op_tolerance(DType::kF64), params[i]->name);
    }
  }
}

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.device().is_cuda()) return same_bytes(a.copy_in(nullptr), b);
  if (b.device().is_cuda()) return same_bytes(a, b.copy_in(nullptr));
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// Bit-equal results on 1, 2, 3 and 5 threads.
inline void expect_threads_agree(const Op& f, const Tensor& x, const std::vector<Param*>& params) {
  const int before = thread_count();
  set_thread_count(1);
  const OpRun want = run_op(f, x, params);
  for (const int threads : {2, 3, 5}) {
    set_thread_count(threads);
    const OpRun got = run_op(f, x, params);
    EXPECT_TRUE(same_bytes(got.y, want.y)) << threads << " threads";
    EXPECT_TRUE(same_bytes(got.dx, want.dx)) << threads << " threads";
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(same_bytes(got.dparams[i], want.dparams[i])) << params[i]->name;
    }
  }
  set_thread_count(before);
}

}  // namespace anabranch::test
