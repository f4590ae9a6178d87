// Every op against PyTorch's float64, in float64 and float32; the cases are those of
// tests/reference/make_ops.py.
#include "tests/support/reference.h"

#include <cmath>

#include "core/ops/adamw.h"
#include "core/ops/attention.h"
#include "core/ops/embedding.h"
#include "core/ops/gelu.h"
#include "core/ops/layer_norm.h"
#include "core/ops/linear.h"
#include "core/ops/linear_cross_entropy.h"
#include "core/ops/rms_norm.h"
#include "core/ops/rope.h"
#include "core/ops/squared_norm.h"
#include "core/ops/swiglu.h"

namespace anabranch {
namespace {

class OpReference : public testing::TestWithParam<DType> {
 protected:
  // The tensor called `name` of `group`, in the type under test.
  Tensor get(const std::string& group, const std::string& name) {
    return test::cast(file_.real(group + "/" + name), GetParam());
  }

  Param param(const std::string& group, const std::string& name) {
    return test::param(name, get(group, name));
  }

  void expect(const std::string& group, const std::string& name, const Tensor& got) {
    EXPECT_EQ(got.dtype(), GetParam()) << name;
    test::expect_close(got, file_.real(group + "/" + name), test::op_tolerance(GetParam()),
                       group + "/" + name);
  }

  // An op of one input: y and dx.
  void expect_op(const std::string& group, const std::function<Var(const Var&)>& f) {
    Tape tape;
    const Var x = tape.input(get(group, "x")), y = f(x);
    expect(group, "y", y.value());
    tape.backward(y, get(group, "dy"));
    expect(group, "dx", tape.take_grad(x));
  }

  // A norm fused with an addition: s, y and the gradient of both inputs.
  template <class F>
  void expect_add_norm(const std::string& group, F f) {
    Tape tape;
    const Var x = tape.input(get(group, "x")), r = tape.input(get(group, "r"));
    const auto out = f(x, r);
    expect(group, "s", out.sum.value());
    expect(group, "y", out.norm.value());
    tape.give(out.sum, get(group, "ds"));
    tape.backward(out.norm, get(group, "dy"));
    expect(group, "dx", tape.take_grad(x));
    expect(group, "dx", tape.take_grad(r));
  }

  void expect_attention(const std::string& group) {
    const int64_t batch = file_.count("batch", group), heads = file_.count("heads", group);
    Tape tape;
    const Var qkv = tape.input(get(group, "qkv")), y = attention(qkv, batch, heads);
    expect(group, "y", y.value());
    tape.backward(y, get(group, "dy"));
    expect(group, "dqkv", tape.take_grad(qkv));
    Tensor again = y.value().clone(), lse = get(group, "lse");
    lse.fill_zero();
    cpu::attention_forward(again, lse, qkv.value(), {});
    expect(group, "lse", lse);
  }

  // The loss, row by row and summed, and its gradient; w is the identity where logits are given.
  void expect_loss(const std::string& group, Param& w, bool rows) {
    const Tensor targets = file_.integers(group + "/targets");
    Tape tape;
    const Var x = tape.input(get(group, "x"));
    const Var loss = linear_cross_entropy(x, w, targets, 1);
    expect(group, "loss", loss.value());
    tape.backward(loss);
    expect(group, "dx", tape.take_grad(x));
    if (!rows) return expect(group, "dw", w.grad);
    Tensor losses = get(group, "losses");
    losses.fill_zero();
    token_losses(losses, x.value(), w, targets);
    expect(group, "losses", losses);
  }

  void expect_adamw(const std::string& group) {
    Tensor p = get(group, "p"), m = get(group, "m"), v = get(group, "v");
    const auto number = [&](const char* name) { return file_.number(name, group); };
    adamw(p, m, v, get(group, "g"), nullptr,
          {.lr = number("lr"),
           .beta1 = number("beta1"),
           .beta2 = number("beta2"),
           .eps = number("eps"),
           .weight_decay = number("weight_decay"),
           .step = file_.count("step", group)});
    expect(group, "p_new", p);
    expect(group, "m_new", m);
    expect(group, "v_new", v);
  }

  test::Reference file_{"ops.h5"};
};

TEST_P(OpReference, Linear) {
  Param w = param("linear", "w"), b = param("linear", "b");
  expect_op("linear", [&](const Var& x) { return linear(x, w, &b); });
  expect("linear", "dw", w.grad);
  expect("linear", "db", b.grad);
}

TEST_P(OpReference, LayerNorm) {
  Param w = param("layer_norm", "w"), b = param("layer_norm", "b");
  const double eps = file_.number("eps", "layer_norm");
  expect_op("layer_norm", [&](const Var& x) { return layer_norm(x, w, b, eps); });
  expect("layer_norm", "dw", w.grad);
  expect("layer_norm", "db", b.grad);
}

TEST_P(OpReference, AddLayerNorm) {
  Param w = param("add_layer_norm", "w"), b = param("add_layer_norm", "b");
  const double eps = file_.number("eps", "add_layer_norm");
  expect_add_norm("add_layer_norm",
                  [&](const Var& x, const Var& r) { return add_layer_norm(x, r, w, b, eps); });
  expect("add_layer_norm", "dw", w.grad);
  expect("add_layer_norm", "db", b.grad);
}

TEST_P(OpReference, RmsNorm) {
  Param w = param("rms_norm", "w");
  const double eps = file_.number("eps", "rms_norm");
  expect_op("rms_norm", [&](const Var& x) { return rms_norm(x, w, eps); });
  expect("rms_norm", "dw", w.grad);
}

TEST_P(OpReference, AddRmsNorm) {
  Param w = param("add_rms_norm", "w");
  const double eps = file_.number("eps", "add_rms_norm");
  expect_add_norm("add_rms_norm",
                  [&](const Var& x, const Var& r) { return add_rms_norm(x, r, w, eps); });
  expect("add_rms_norm", "dw", w.grad);
}

TEST_P(OpReference, Gelu) {
  expect_op("gelu_tanh", [](const Var& x) { return gelu(x, GeluForm::kTanh); });
  expect_op("gelu_erf", [](const Var& x) { return gelu(x, GeluForm::kErf); });
}

TEST_P(OpReference, Swiglu) { expect_op("swiglu", swiglu); }

TEST_P(OpReference, Rope) {
  const int64_t batch = file_.count("batch", "rope"), tokens = file_.count("tokens", "rope");
  Tensor positions({batch * tokens}, DType::kI32);
  for (int64_t n = 0; n < batch * tokens; ++n) {
    positions.data<int32_t>()[n] = static_cast<int32_t>(n % tokens);
  }
  const RopeForm form{.heads_q = file_.count("heads", "rope"),
                      .heads_kv = 0,
                      .head_dim = file_.count("head_dim", "rope"),
                      .base = file_.number("base", "rope")};
  expect_op("rope", [&](const Var& x) { return rope(x, positions, form); });
}

TEST_P(OpReference, Attention) {
  expect_attention("attention");
  expect_attention("attention_wide");
  expect_attention("attention_long");
}

TEST_P(OpReference, CrossEntropy) {
  for (const std::string group : {"cross_entropy", "cross_entropy_large"}) {
    const int64_t vocabulary = get(group, "x").dim(1);
    Tensor identity = test::full({vocabulary, vocabulary}, 0, GetParam());
    dispatch(GetParam(), [&]<class T>() {
      for (int64_t i = 0; i < vocabulary; ++i) identity.data<T>()[i * vocabulary + i] = T(1);
    });
    Param w = test::param("identity", identity);
    expect_loss(group, w, true);
  }
}

TEST_P(OpReference, LinearCrossEntropy) {
  Param w = param("linear_cross_entropy", "w");
  expect_loss("linear_cross_entropy", w, false);
}

TEST_P(OpReference, Embedding) {
  Param wte = param("embedding", "wte"), wpe = param("embedding", "wpe");
  const Tensor tokens = file_.integers("embedding/tokens");
  Tensor positions({tokens.count()}, DType::kI32);
  for (int64_t n = 0; n < tokens.count(); ++n) {
    positions.data<int32_t>()[n] = static_cast<int32_t>(n % tokens.dim(1));
  }
  Tape tape;
  const Var y = embedding(&tape, tokens.reshape({tokens.count()}), wte, positions, &wpe);
  expect("embedding", "y", y.value());
  tape.backward(y, get("embedding", "dy"));
  expect("embedding", "dwte", wte.grad);
  expect("embedding", "dwpe", wpe.grad);
}

TEST_P(OpReference, GradientNorm) {
  const double want = file_.number("clip/norm");
  EXPECT_NEAR(std::sqrt(squared_norm(get("clip", "g"))), want,
              test::op_tolerance(GetParam()).relative * want);
}

TEST_P(OpReference, Adamw) {
  expect_adamw("adamw");
  expect_adamw("adamw_first");
}

INSTANTIATE_TEST_SUITE_P(Types, OpReference, testing::Values(DType::kF64, DType::kF32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

}  // namespace
}  // namespace anabranch
