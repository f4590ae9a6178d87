#include "runtime/bench/op_timer.h"

#include <utility>

#include "core/nn/layers.h"
#include "runtime/bench/timing.h"

namespace anabranch {

OpTimer::OpTimer(int64_t rows, DType type, int64_t repeats, std::shared_ptr<Pool> pool)
    : rows_(rows),
      repeats_(repeats),
      type_(type),
      wide_(accumulator_of(type)),
      pool_(std::move(pool)) {}

Tensor OpTimer::random(Shape shape, DType type) const { return random_values(shape, type, pool_); }

void OpTimer::make(Param& w) const {
  set_compute(w, type_);
  allocate(w, wide_, pool_);
  initialise(w, 1);
  w.grad = Tensor(w.shape, wide_, pool_, "bench");
  w.grad.fill_zero();
  w.fresh = false;
}

void OpTimer::time(const std::string& name, double flops, double moved,
                   const std::function<void()>& f) {
  all_.push_back({name, median(seconds_of(repeats_, f)), flops, moved});
}

void OpTimer::both(const std::string& name, const OpFigures& cost,
                   const std::function<Var(Tape*)>& op) {
  time(name + " forward", cost.flops, cost.bytes, [&] { op(nullptr); });
  std::vector<double> seconds;
  Tensor dy;
  for (int64_t i = 0; i <= repeats_; ++i) {
    Tape tape;
    const Var y = op(&tape);
    if (dy.empty()) dy = random(y.shape(), y.dtype());
    const Stopwatch watch;
    tape.backward(y, dy);
    if (i > 0) seconds.push_back(watch.seconds());
  }
  all_.push_back({name + " backward", median(seconds), cost.backward_flops, cost.backward_bytes});
}

}  // namespace anabranch
