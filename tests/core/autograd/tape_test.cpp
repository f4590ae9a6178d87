#include "core/autograd/tape.h"

#include "core/autograd/attach_loss.h"
#include "core/autograd/recompute.h"
#include "core/tensor/accumulate.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

// y = w * x elementwise: the smallest op with a parameter.
Var scale(const Var& x, Param& w) {
  Tensor y = x.value().like("scale");
  for (int64_t i = 0; i < y.count(); ++i) {
    y.data<double>()[i] = w.value.data<double>()[i] * x.value().data<double>()[i];
  }
  if (x.tape() == nullptr) return y;
  return x.tape()->record("scale", y, {&w}, [x, &w](Tape& t, const Tensor& dy) {
    GradSink dw = t.grad(w), dx = t.grad(x);
    for (int64_t i = 0; i < dy.count(); ++i) {
      const double g = dy.data<double>()[i];
      double& to_w = dw.out.data<double>()[i];
      double& to_x = dx.out.data<double>()[i];
      to_w = g * x.value().data<double>()[i] + (dw.accumulate ? to_w : 0);
      to_x = g * w.value.data<double>()[i] + (dx.accumulate ? to_x : 0);
    }
  });
}

// [x, 2x]: an op with two outputs.
std::vector<Var> once_and_twice(const Var& x) {
  Tensor twice = x.value().clone();
  accumulate(twice, x.value());
  return x.tape()->record_many("once_and_twice", {x.value(), twice}, {},
                               [x](Tape& t, std::span<Tensor> dys) {
                                 if (!dys[0].empty()) t.give(x, dys[0]);
                                 if (!dys[1].empty()) {
                                   t.give(x, dys[1]);
                                   t.give(x, dys[1]);
                                 }
                               });
}

Var sum(const Var& x) {
  double total = 0;
  for (const double v : x.value().span<double>()) total += v;
  if (x.tape() == nullptr) return Tensor::of<double>({1}, {total});
  return x.tape()->record("sum", Tensor::of<double>({1}, {total}), {},
                          [x](Tape& t, const Tensor& dy) {
                            GradSink dx = t.grad(x);
                            for (double& g : dx.out.span<double>()) {
                              g = *dy.data<double>() + (dx.accumulate ? g : 0);
                            }
                          });
}

TEST(Tape, FanInAccumulates) {
  Param w = test::param("w", Tensor::of<double>({2}, {3, 5}));
  test::expect_gradients([&](const Var& x) { return scale(scale(x, w), w); },
                         Tensor::of<double>({2}, {1, 2}), {&w});
}

TEST(Tape, AnUnusedOutputHasNoGradient) {
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({1}, {1}));
  tape.backward(sum(once_and_twice(x)[1]));
  EXPECT_EQ(*tape.take_grad(x).data<double>(), 2);
}

TEST(Tape, ASharedGradientIsClonedBeforeItIsAddedTo) {
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({1}, {1}));
  const auto both = once_and_twice(x);
  const Tensor seed = Tensor::of<double>({1}, {1});
  const Var joined = tape.record("join", both[0].value(), {}, [=](Tape& t, const Tensor& dy) {
    t.give(both[0], dy);
    t.give(both[1], dy);
  });
  tape.backward(joined, seed);
  EXPECT_EQ(*tape.take_grad(x).data<double>(), 3);
  EXPECT_EQ(*seed.data<double>(), 1);
}

TEST(Tape, ATiedParameterIsReadyOnceAfterItsLastUse) {
  Param w = test::param("w", Tensor::of<double>({1}, {3}));
  Param v = test::param("v", Tensor::of<double>({1}, {2}));
  std::vector<std::string> ready;
  Tape tape;
  tape.on_grad_ready = [&](Param& p) { ready.push_back(p.name); };
  tape.backward(sum(scale(scale(scale(tape.input(Tensor::of<double>({1}, {1})), w), v), w)));
  EXPECT_EQ(ready, (std::vector<std::string>{"v", "w"}));
}

TEST(Tape, MicroBatchesAccumulateInPlaceAndAFreshStepOverwrites) {
  Param w = test::param("w", Tensor::of<double>({1}, {3}));
  const auto run = [&](double x) {
    Tape tape;
    tape.backward(sum(scale(tape.input(Tensor::of<double>({1}, {x})), w)));
    return *w.grad.data<double>();
  };
  EXPECT_EQ(run(5), 5);
  EXPECT_EQ(run(7), 12);
  w.fresh = true;
  EXPECT_EQ(run(7), 7);
}

// Each op's gradient goes to the lane that it was recorded in, whichever is the last.
TEST(Tape, LanesKeepGradientsApart) {
  Param w = test::param("w", Tensor::of<double>({1}, {3}));
  w.grad = test::full({1}, 77);
  for (int lane = 1; lane < 3; ++lane) w.lanes.push_back({test::full({1}, 77)});
  const auto run = [&](double x, int first, int second) {
    Tape tape;
    tape.set_lane(first);
    const Var y = scale(tape.input(Tensor::of<double>({1}, {x})), w);
    tape.set_lane(second);
    const Var z = recompute(y, [&](const Var& v) { return scale(v, w); });
    tape.set_lane(0);
    tape.backward(sum(z));
  };
  run(5, 2, 1);
  EXPECT_EQ(*w.lanes[1].grad.data<double>(), 15);  // d (w^2 x) by one of the two w
  EXPECT_EQ(*w.lanes[0].grad.data<double>(), 15);
  EXPECT_TRUE(w.fresh);
  EXPECT_EQ(*w.grad.data<double>(), 77);
  run(1, 2, 0);
  EXPECT_EQ(*w.lanes[1].grad.data<double>(), 18);
  EXPECT_EQ(*w.lanes[0].grad.data<double>(), 15);
  EXPECT_EQ(*w.grad.data<double>(), 3);
}

TEST(Tape, ALaneThatAParameterHasNotIsRefused) {
  Param w = test::param("w", Tensor::of<double>({1}, {3}));
  w.lanes.push_back({test::full({1}, 0)});
  for (const int lane : {-1, 2}) {
    Tape tape;
    tape.set_lane(lane);
    EXPECT_THROW((void)tape.grad(w), Error) << lane;
  }
}

TEST(Tape, RecomputeGivesTheSameGradientsAndSaysSo) {
  Param w = test::param("w", test::random({3}, 1));
  int written = 0;
  const auto block = [&](const Var& x) {
    if (x.tape() != nullptr && !x.tape()->recomputing()) ++written;
    return scale(scale(x, w), w);
  };
  const Tensor x = test::random({3}, 2);
  test::expect_gradients([&](const Var& v) { return recompute(v, block); }, x, {&w});
  written = 0;
  Tape tape;
  tape.backward(sum(recompute(tape.input(x), block)));
  EXPECT_EQ(written, 1);
}

TEST(Tape, RecomputeReportsItsParametersReadyOnce) {
  Param w = test::param("w", test::random({3}, 1));
  int ready = 0;
  Tape tape;
  tape.on_grad_ready = [&](Param&) { ++ready; };
  tape.backward(sum(recompute(tape.input(test::random({3}, 2)),
                              [&](const Var& x) { return scale(scale(x, w), w); })));
  EXPECT_EQ(ready, 1);
}

TEST(Tape, AnAttachedLossAddsItsGradient) {
  Param w = test::param("w", Tensor::of<double>({2}, {3, 5}));
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({2}, {1, 1}));
  const Var aux = sum(scale(x, w));
  tape.backward(sum(attach_loss(x, aux, 0.5F)));
  EXPECT_EQ(test::values(w.grad), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(test::values(tape.take_grad(x)), (std::vector<double>{1 + 1.5, 1 + 2.5}));
}

TEST(Tape, ATraceHasEveryOpForwardAndBackward) {
  Param w = test::param("w", test::random({3}, 1));
  Trace trace;
  trace.set_on(true);
  Tape tape(Tape::Mode::kRecord, &trace);
  tape.backward(sum(scale(tape.input(test::random({3}, 2)), w)));
  const std::string json = trace.json(0);
  for (const char* name : {"\"scale\"", "\"sum\"", "\"scale backward\"", "\"sum backward\""}) {
    EXPECT_NE(json.find(name), std::string::npos) << name;
  }
}

TEST(Tape, AnErrorNamesItsOp) {
  Tape tape;
  const Var x = tape.input(Tensor::of<double>({1}, {1}));
  const Var y = tape.record("faulty", x.value(), {}, [](Tape&, const Tensor&) { AB_FAIL("no"); });
  try {
    tape.backward(y);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("backward of faulty"), std::string::npos);
  }
}

}  // namespace
}  // namespace anabranch
