#include "runtime/models/gpt2.h"

#include <map>

#include <gtest/gtest.h>

#include "core/nn/init.h"
#include "runtime/training_state.h"
#include "tests/support/reference.h"

namespace anabranch {
namespace {

const StepKey kKey{1, 0};

Gpt2Options options_of(const test::Reference& ref, DType type) {
  Gpt2Options o;
  o.layers = ref.count("n_layer");
  o.width = ref.count("n_embd");
  o.heads = ref.count("n_head");
  o.context = ref.count("n_positions");
  o.vocabulary = ref.count("vocab_size");
  o.compute = type;
  return o;
}

Config config_of_reference() {
  Config config;
  config.optim.beta2 = 0.95;
  config.optim.weight_decay = 0.1;
  config.optim.clip = 1.0;
  config.optim.lr = 1e-3;
  config.optim.schedule = ScheduleForm::kConstant;
  return config;
}

// The model of the reference file, with its weights, in `type`.
struct Fixture {
  Fixture(const test::Reference& ref, DType type, bool recompute = false)
      : options(options_of(ref, type)) {
    options.recompute = recompute;
    model = std::make_unique<Gpt2>(options);
    state = std::make_unique<TrainingState>(*model, config, FlatStore::Options{}, nullptr);
    model->visit([&](Param& w) {
      w.master.copy_from(test::cast(ref.real("weights/" + w.name), w.master.dtype()));
    });
    state->store().refresh_values();
  }

  // The mean loss of a batch; its gradients are left in the parameters.
  double backward(const MicroBatch& batch) {
    state->store().forget_grads();
    Tape tape;
    const Var y = model->loss(tape, batch, kKey, 1.0 / static_cast<double>(batch.inputs.count()));
    tape.backward(y);
    return test::values(y.value()).front();
  }

  Config config = config_of_reference();
  Gpt2Options options;
  std::unique_ptr<Gpt2> model;
  std::unique_ptr<TrainingState> state;
};

MicroBatch batch_of(const Tensor& tokens, const Tensor& targets) { return {tokens, targets, 0}; }

class AgainstPyTorch : public testing::TestWithParam<DType> {
 protected:
  [[nodiscard]] static test::Tolerance tolerance() {
    return GetParam() == DType::kF64 ? test::kModelF64 : test::kModelF32;
  }

  test::Reference ref{"gpt2.h5"};
};

TEST_P(AgainstPyTorch, LogitsLossAndEveryGradient) {
  for (const bool recompute : {false, true}) {
    Fixture f(ref, GetParam(), recompute);
    const Tensor tokens = ref.integers("tokens");
    test::expect_close(f.model->logits(tokens), ref.real("logits"), tolerance(), "logits");
    const double loss = f.backward(batch_of(tokens, ref.integers("targets")));
    EXPECT_NEAR(loss, ref.number("loss"), tolerance().relative * ref.number("loss"));
    f.model->visit([&](Param& w) {
      const Tensor want = ref.real("grads/" + w.name);
      test::expect_close(w.grad, want, tolerance(), "gradient of " + w.name);
    });
  }
}

TEST_P(AgainstPyTorch, TenSteps) {
  Fixture f(ref, GetParam());
  const Tensor tokens = ref.integers("adamw/tokens"), targets = ref.integers("adamw/targets");
  const std::vector<double> losses = test::values(ref.real("adamw/losses"));
  const std::vector<double> norms = test::values(ref.real("adamw/grad_norms"));
  const Shape one{tokens.dim(1), tokens.dim(2)};
  for (int64_t i = 0; i < tokens.dim(0); ++i) {
    const double loss =
        f.backward(batch_of(tokens.view(i * one.count(), one), targets.view(i * one.count(), one)));
    const auto at = static_cast<size_t>(i);
    EXPECT_NEAR(loss, losses[at], tolerance().relative * losses[at]) << "step " << i;
    const double norm = f.state->optimizer().grad_norm();
    EXPECT_NEAR(norm, norms[at], tolerance().relative * norms[at]) << "step " << i;
    f.state->optimizer().step(i, norm);
  }
  f.model->visit([&](Param& w) {
    Tensor got = w.master, want = ref.real("adamw/weights/" + w.name);
    if (w.name.ends_with("c_attn.bias") && GetParam() == DType::kF32) {
      // The key bias cannot change the loss: in float32 Adam walks it by rounding noise.
      got = got.view(0, {f.options.width});
      want = want.view(0, {f.options.width});
    }
    test::expect_close(got, want, tolerance(), w.name);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, AgainstPyTorch, testing::Values(DType::kF64, DType::kF32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(Gpt2, SmallHasItsKnownNumberOfParameters) {
  Gpt2 model(Gpt2Options{});
  int64_t parameters = 0;
  model.visit([&](const Param& w) { parameters += w.shape.count(); });
  EXPECT_EQ(parameters, 124'439'808);
  EXPECT_EQ(model.cost().parameters, parameters);
  EXPECT_EQ(model.cost().non_embedding_parameters, 85'056'000);
}

TEST(Gpt2, Bf16StaysNearFloat64) {
  const test::Reference ref("gpt2.h5");
  Fixture f(ref, DType::kBF16);
  const double loss = f.backward(batch_of(ref.integers("tokens"), ref.integers("targets")));
  const double want = ref.number("loss");
  EXPECT_NEAR(loss, want, test::op_tolerance(DType::kBF16).relative * want);
}

TEST(Gpt2, DropoutDependsOnTheGlobalSampleAlone) {
  const test::Reference ref("gpt2.h5");
  Fixture f(ref, DType::kF64);
  Gpt2Options o = f.options;
  o.dropout = 0.3F;
  Gpt2 model(o);
  model.visit([](Param& w) {
    allocate(w, DType::kF64);
    initialise(w, 1);
  });
  const Tensor tokens = ref.integers("tokens"), targets = ref.integers("targets");
  const auto loss = [&](int64_t first, int64_t count, int64_t step) {
    const int64_t T = tokens.dim(1);
    Tape tape;
    const MicroBatch part{tokens.view(first * T, {count, T}), targets.view(first * T, {count, T}),
                          first};
    return test::values(model.loss(tape, part, {1, step}, 1).value()).front();
  };
  const double whole = loss(0, 3, 0);
  EXPECT_NEAR(loss(0, 1, 0) + loss(1, 2, 0), whole, test::kModelF64.relative * whole);
  EXPECT_NE(loss(0, 3, 1), whole);
}

TEST(Gpt2, EvaluationIgnoresUncountedTargets) {
  const test::Reference ref("gpt2.h5");
  Fixture f(ref, DType::kF64);
  MicroBatch batch = batch_of(ref.integers("tokens"), ref.integers("targets").clone());
  batch.targets.data<int32_t>()[5] = -1;
  const std::vector<double> losses = test::values(f.model->token_losses(batch));
  EXPECT_EQ(losses[5], 0);
  EXPECT_GT(losses[4], 0);
}

// Each sequence b of two documents, the second of which begins at 5 + 2b.
Tensor two_documents(const Tensor& tokens) {
  const int64_t T = tokens.dim(1);
  Tensor starts(tokens.shape(), DType::kI32);
  starts.fill_zero();
  for (int64_t b = 0; b < tokens.dim(0); ++b) {
    for (int64_t t = 5 + 2 * b; t < T; ++t) {
      starts.data<int32_t>()[b * T + t] = static_cast<int32_t>(5 + 2 * b);
    }
  }
  return starts;
}

TEST(Gpt2, WithAMaskOneDocumentDoesNotReachTheNext) {
  const test::Reference ref("gpt2.h5");
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    Fixture f(ref, type);
    MicroBatch batch = batch_of(ref.integers("tokens"), ref.integers("targets"));
    MicroBatch other = batch_of(batch.inputs.clone(), batch.targets);
    const int64_t T = batch.inputs.dim(1);
    for (int64_t b = 0; b < batch.inputs.dim(0); ++b) {
      for (int64_t t = 0; t < 5 + 2 * b; ++t) {
        int32_t& id = other.inputs.data<int32_t>()[b * T + t];
        id = (id + 1) % static_cast<int32_t>(f.options.vocabulary);
      }
    }
    for (const bool masked : {false, true}) {
      if (masked) batch.document_starts = other.document_starts = two_documents(batch.inputs);
      const std::vector<double> before = test::values(f.model->token_losses(batch));
      const std::vector<double> after = test::values(f.model->token_losses(other));
      for (int64_t i = 0; i < batch.inputs.count(); ++i) {
        const bool own = i % T < 5 + 2 * (i / T);
        const double x = before[static_cast<size_t>(i)], y = after[static_cast<size_t>(i)];
        EXPECT_EQ(x != y, own || !masked) << name_of(type) << " " << i;
      }
    }
  }
}

TEST(Gpt2, RecomputingHeedsTheMask) {
  const test::Reference ref("gpt2.h5");
  Fixture plain(ref, DType::kF32), again(ref, DType::kF32, true);
  MicroBatch batch = batch_of(ref.integers("tokens"), ref.integers("targets"));
  const double unmasked = plain.backward(batch);
  batch.document_starts = two_documents(batch.inputs);
  const double loss = plain.backward(batch);
  EXPECT_NE(loss, unmasked);
  EXPECT_EQ(again.backward(batch), loss);
  std::map<std::string, std::vector<double>> want;
  plain.model->visit([&](Param& w) { want[w.name] = test::values(w.grad); });
  again.model->visit([&](Param& w) { EXPECT_EQ(test::values(w.grad), want[w.name]) << w.name; });
}

TEST(Gpt2, WrongSizesAreRefused) {
  Gpt2Options o;
  o.heads = 7;
  EXPECT_THROW(Gpt2{o}, Error);
  const test::Reference ref("gpt2.h5");
  Fixture f(ref, DType::kF64);
  const Tensor ids({1, 17}, DType::kI32);
  EXPECT_THROW((void)f.model->logits(ids), Error);
}

}  // namespace
}  // namespace anabranch
