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

Tensor OpTimer::random(Shape shape, DType type) const {
  return runs() ? random_values(shape, type, pool_) : Tensor(shape, type, pool_, "bench");
}

Tensor OpTimer::logits(int64_t columns) const {
  return random_values({rows_, columns}, wide_, pool_);
}

void OpTimer::make(Param& w) const {
  if (!runs()) return;
  set_compute(w, type_);
  allocate(w, wide_, pool_);
  initialise(w, 1);
  w.grad = Tensor(w.shape, wide_, pool_, "bench");
  w.grad.fill_zero();
  w.fresh = false;
}

bool OpTimer::on_gpu() const { return pool_ && pool_->device().is_cuda(); }

void OpTimer::finish() const {
  if (on_gpu()) pool_->stream().synchronise();
}

void OpTimer::time(const std::string& name, double flops, double moved,
                   const std::function<void()>& f) {
  if (!runs()) return all_.push_back({name, 0, flops, moved});
  const int64_t calls = on_gpu() ? 20 : 1;
  const auto all = seconds_of(repeats_, [&] {
    for (int64_t i = 0; i < calls; ++i) f();
    finish();
  });
  all_.push_back({name, median(all) / static_cast<double>(calls), flops, moved});
}

void OpTimer::both(const std::string& name, const OpFigures& cost,
                   const std::function<Var(Tape*)>& op) {
  time(name + " forward", cost.flops, cost.bytes, [&] { op(nullptr); });
  const OpTiming backward{name + " backward", 0, cost.backward_flops, cost.backward_bytes};
  if (!runs()) return all_.push_back(backward);
  const size_t calls = on_gpu() ? 4 : 1;
  std::vector<double> seconds;
  Tensor dy;
  for (int64_t i = 0; i <= repeats_; ++i) {
    std::vector<std::unique_ptr<Tape>> tapes;
    std::vector<Var> ys;
    for (size_t c = 0; c < calls; ++c) {
      tapes.push_back(std::make_unique<Tape>());
      ys.push_back(op(tapes.back().get()));
    }
    if (dy.empty()) dy = random(ys.front().shape(), ys.front().dtype());
    finish();
    const Stopwatch watch;
    for (size_t c = 0; c < calls; ++c) tapes[c]->backward(ys[c], dy);
    finish();
    if (i > 0) seconds.push_back(watch.seconds() / static_cast<double>(calls));
  }
  all_.push_back(backward);
  all_.back().seconds = median(seconds);
}

}  // namespace anabranch
