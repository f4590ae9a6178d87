// A model of any family against a recorded case of it: logits, losses, every gradient, and steps.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "runtime/models/gpt2_block.h"
#include "runtime/training_state.h"
#include "tests/support/reference.h"

namespace anabranch::test {

using MakeModel = std::function<std::unique_ptr<Model>(DType compute)>;

class FamilyCase {
 public:
  // The model with the case's weights, in `type`.
  FamilyCase(const Reference& ref, std::string name, const MakeModel& make, DType type,
             const Config& config)
      : ref_(ref),
        name_(std::move(name)),
        type_(type),
        config_(config),
        model_(make(type)),
        state_(*model_, config_, FlatStore::Options{}, nullptr),
        measures_(std::max<size_t>(model_->measure_places(sequences()), 1),
                  model_->detail_places()) {
    load("weights/");
  }

  [[nodiscard]] Model& model() { return *model_; }

  [[nodiscard]] TrainingState& state() { return state_; }

  // What runs in place of the model's loss; there are no logits to compare then.
  std::function<Var(Tape&, const MicroBatch&, const StepKey&, double scale)> loss_of = {};
  // The same of what is learnt in place of the recorded targets.
  Tensor learnt = {};

  // Every recorded value of the case. All of a model's parameters must be in it.
  void expect_all() {
    const Tolerance tolerance = type_ == DType::kF64 ? kModelF64 : kModelF32;
    const Tensor tokens = ref_.integers(at("tokens"));
    Tensor logits = ref_.real(at("logits"));
    if (logits.count() > 0 && !loss_of)
      expect_close(model_->logits(tokens), logits, tolerance, "logits");
    expect_losses(tokens, learnt.empty() ? ref_.integers(at("targets")) : learnt,
                  ref_.number(at("loss")), ref_.number(at("aux_loss")), tolerance);
    double largest = 0;  // of all gradients: some parameters have none but rounding
    model_->visit([&](Param& w) {
      for (const double v : values(ref_.real(at("grads/" + w.name)))) {
        largest = std::max(largest, std::abs(v));
      }
    });
    model_->visit([&](Param& w) {
      const Tensor want = ref_.real(at("grads/" + w.name));
      expect_close(w.grad, want, {tolerance.relative, tolerance.relative * largest},
                   "gradient of " + w.name);
    });
  }

  // The recorded optimizer steps; in float64 alone, where rounding does not decide.
  void expect_steps(Tolerance weights) {
    load("weights/");
    const Tensor tokens = ref_.integers(at("steps/tokens"));
    const Tensor targets = ref_.integers(at("steps/targets"));
    const auto losses = values(ref_.real(at("steps/losses")));
    const auto aux = values(ref_.real(at("steps/aux_losses")));
    const auto norms = values(ref_.real(at("steps/grad_norms")));
    const Shape one{tokens.dim(1), tokens.dim(2)};
    for (int64_t i = 0; i < tokens.dim(0); ++i) {
      const auto step = static_cast<size_t>(i);
      expect_losses(tokens.view(i * one.count(), one), targets.view(i * one.count(), one),
                    losses[step], aux[step], {1e-8, 1e-10});
      const double norm = state_.optimizer().grad_norm();
      EXPECT_NEAR(norm, norms[step], 1e-7 * norms[step]) << "step " << i;
      state_.optimizer().step(i, norm);
      model_->end_step(measures_);
    }
    model_->visit([&](Param& w) {
      expect_close(w.master, ref_.real(at("steps/weights/" + w.name)), weights, w.name);
    });
  }

 private:
  [[nodiscard]] std::string at(const std::string& what) const { return name_ + "/" + what; }

  [[nodiscard]] int64_t sequences() const { return ref_.integers(at("tokens")).dim(0); }

  void load(const std::string& group) {
    model_->visit([&](Param& w) {
      w.master.copy_from(cast(ref_.real(at(group + w.name)), w.master.dtype()));
    });
    state_.store().refresh_values();
  }

  // Forward and backward; leaves gradients and figures.
  void expect_losses(const Tensor& tokens, const Tensor& targets, double loss, double aux,
                     Tolerance tolerance) {
    state_.store().forget_grads();
    std::ranges::fill(measures_.sums(), 0.0);
    measures_.detailed = true;
    int64_t counted = 0;
    for (const int32_t target : targets.span<int32_t>()) counted += target >= 0 ? 1 : 0;
    Tape tape;
    const MicroBatch batch{tokens, targets, 0};
    const StepKey key{1, 0, &measures_};
    const double scale = 1.0 / static_cast<double>(counted);
    const Var y =
        loss_of ? loss_of(tape, batch, key, scale) : model_->loss(tape, batch, key, scale);
    tape.backward(y);
    model_->visit([](Param& w) {
      if (!w.fresh) return;  // nothing wrote it: zero, as a reduction makes it
      w.grad.fill_zero();
      w.fresh = false;
    });
    EXPECT_NEAR(values(y.value()).front(), loss, tolerance.relative * loss) << name_;
    EXPECT_NEAR(measures_.at(0), aux, tolerance.relative * std::max(aux, 1e-3)) << name_;
  }

  const Reference& ref_;
  std::string name_;
  DType type_;
  const Config& config_;
  std::unique_ptr<Model> model_;
  TrainingState state_;
  Measures measures_;
};

// A GPT-2 backbone as a case describes it.
inline Gpt2Options backbone_of(const Reference& ref, const std::string& name, DType type) {
  Gpt2Options o;
  o.layers = ref.count("layers", name);
  o.width = ref.count("width", name);
  o.heads = ref.count("heads", name);
  o.context = ref.count("context", name);
  o.ffn_width = ref.count("ffn_width", name);
  o.vocabulary = ref.count("vocabulary", name);
  o.compute = type;
  return o;
}

// The AdamW of most recorded steps, at a constant rate.
inline Config adamw_of_references() {
  Config config;
  config.optim.lr = 1e-3;
  config.optim.schedule = ScheduleForm::kConstant;
  return config;
}

}  // namespace anabranch::test
