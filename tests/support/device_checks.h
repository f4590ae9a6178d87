// Ops of several inputs on a GPU, against the CPU.
#pragma once

#include "tests/support/op_checks.h"

namespace anabranch::test {

// What `f` gives on a device, with a fixed pseudo-random gradient of its result.
struct ManyRun {
  Tensor y;
  std::vector<Tensor> dxs, dparams;
};

inline ManyRun run_many(const OpOfMany& f, const std::vector<Tensor>& xs,
                        const std::vector<Param*>& params, const TestDevice& device) {
  const ParamsOn there(device, params);
  for (Param* w : params) {
    w->fresh = true;
    w->grad = {};
  }
  Tape tape;
  std::vector<Var> leaves;
  for (const Tensor& x : xs) leaves.push_back(tape.input(device.place(x)));
  const Var y = f(leaves);
  tape.backward(y, device.place(random(y.shape(), 99, y.dtype())));
  ManyRun run{y.value(), {}, {}};
  for (const Var& leaf : leaves) run.dxs.push_back(tape.take_grad(leaf));
  for (const Param* w : params) run.dparams.push_back(w->grad);
  return run;
}

// Values and gradients of `f` on each GPU are the CPU's, of the same inputs in the same types; the
// tolerance is that of `type`.
inline void expect_devices_agree(const OpOfMany& f, const std::vector<Tensor>& xs,
                                 const std::vector<Param*>& params, DType type) {
  const std::vector<TestDevice> all = devices();
  const ManyRun want = run_many(f, xs, params, all.front());
  const auto near = [type](const Tensor& got, const Tensor& right, const std::string& name) {
    EXPECT_EQ(got.dtype(), right.dtype()) << name;
    expect_near(got, values(right), op_tolerance(type), name);
  };
  for (size_t d = 1; d < all.size(); ++d) {
    const ManyRun got = run_many(f, xs, params, all[d]);
    const std::string prefix = join(all[d].name, " ", name_of(type), " ");
    near(got.y, want.y, prefix + "y");
    for (size_t i = 0; i < xs.size(); ++i) near(got.dxs[i], want.dxs[i], join(prefix, "dx", i));
    for (size_t i = 0; i < params.size(); ++i) {
      near(got.dparams[i], want.dparams[i], prefix + params[i]->name);
    }
  }
}

inline constexpr DType kFloating[] = {DType::kF32, DType::kBF16, DType::kF64};

}  // namespace anabranch::test
