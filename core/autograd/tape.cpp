#include "core/autograd/tape.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/range.h"
#include "core/tensor/accumulate.h"
#include "core/tensor/element.h"

namespace anabranch {

Tape::Tape(Mode mode, Trace* trace) : mode_(mode), trace_(trace) {
  if (traced()) forward_begin_ = Trace::Clock::now();
}

Var Tape::input(Tensor value) {
  grads_.emplace_back();
  return {std::move(value), this, static_cast<int>(grads_.size()) - 1};
}

Var Tape::record(const char* op, Tensor y, std::vector<Param*> params, Backward backward) {
  return record_many(op, {std::move(y)}, std::move(params),
                     [backward = std::move(backward)](Tape& tape, std::span<Tensor> dys) {
                       backward(tape, dys.front());
                     })
      .front();
}

std::vector<Var> Tape::record_many(const char* op, std::vector<Tensor> ys,
                                   std::vector<Param*> params, BackwardMany backward) {
  for (Param* w : params) {
    if (uses_[w]++ == 0) params_.push_back(w);
  }
  if (trace_ != nullptr) trace_->set_op(op);
  if (traced()) {
    const auto now = Trace::Clock::now();
    trace_->add_span(Lane::kCompute, op, forward_begin_, now);
    forward_begin_ = now;
  }
  const auto first = static_cast<int>(grads_.size());
  const auto outputs = static_cast<int>(ys.size());
  grads_.resize(grads_.size() + ys.size());
  if (mode_ != Mode::kDry) {
    nodes_.push_back({op, first, outputs, lane_, std::move(params), std::move(backward)});
  }
  std::vector<Var> vars;
  vars.reserve(ys.size());
  for (int i = 0; i < outputs; ++i) {
    vars.emplace_back(std::move(ys[static_cast<size_t>(i)]), this, first + i);
  }
  return vars;
}

void Tape::backward(const Var& loss) {
  AB_CHECK(loss.value().count() == 1, "backward from a tensor of shape ", loss.shape(),
           "; only a scalar loss has an implied gradient of 1");
  Tensor one = loss.value().like("seed");
  set_element(one, 1);
  backward(loss, one);
}

void Tape::backward(const Var& y, Tensor dy) {
  AB_CHECK(y.tape() == this, "backward from a Var of another tape");
  AB_CHECK(mode_ != Mode::kDry, "a dry tape has nothing to run backward");
  AB_CHECK(y.shape() == dy.shape(), "the seed is ", dy.shape(), " but the output ", y.shape());
  Tensor& seed = grads_[static_cast<size_t>(y.id())];
  if (seed.empty()) {
    seed = std::move(dy);
  } else {
    give(y, dy);
  }
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    run(node);
    node.backward = nullptr;  // frees what it kept before a reducer starts work
    for (Param* w : node.params) {
      if (--uses_[w] == 0 && on_grad_ready) on_grad_ready(*w);
    }
  }
}

void Tape::run(Node& node) {
  std::vector<Tensor> dys(static_cast<size_t>(node.outputs));
  bool any = false;
  for (size_t i = 0; i < dys.size(); ++i) {
    dys[i] = std::exchange(grads_[static_cast<size_t>(node.first_output) + i], {});
    any = any || !dys[i].empty();
  }
  if (!any || !node.backward) return;
  lane_ = node.lane;
  if (trace_ != nullptr) trace_->set_op(node.op);
  const Range range(node.op);
  const auto begin = traced() ? Trace::Clock::now() : Trace::Clock::time_point{};
  try {
    node.backward(*this, dys);
    if (traced()) {
      trace_->add_span(Lane::kCompute, std::string(node.op) + " backward", begin,
                       Trace::Clock::now());
    }
  } catch (const Error& error) {
    throw Error(error.fault(), join("backward of ", node.op, ": ", error.what()));
  }
}

GradSink Tape::grad(const Var& x) {
  AB_CHECK(wants(x), "a gradient was asked for a Var of another tape");
  Tensor& g = grads_[static_cast<size_t>(x.id())];
  if (g.empty()) {
    const bool wide = std::ranges::binary_search(wide_, x.id());
    const DType type = wide ? accumulator_of(x.dtype()) : x.dtype();
    g = x.value().like(x.shape(), type, "gradient");
    return {g, false};
  }
  if (!g.unique()) g = g.clone("gradient");  // someone still reads it
  return {g, true};
}

void Tape::widen_grad(const Var& x) {
  AB_CHECK(wants(x) && (wide_.empty() || wide_.back() < x.id()),
           "widen_grad is for a Var that was just recorded");
  wide_.push_back(x.id());
}

GradSink Tape::grad(Param& w) {
  if (lane_ != 0) {
    AB_CHECK(0 < lane_ && lane_ <= std::ssize(w.lanes), "a gradient of ", w.name, " in lane ",
             lane_, ", but it has lanes 0 to ", w.lanes.size(),
             "; a store makes them (FlatStore::Options::lanes)");
    GradLane& lane = w.lanes[static_cast<size_t>(lane_) - 1];
    return {lane.grad, !std::exchange(lane.fresh, false)};
  }
  if (w.grad.empty()) w.grad = w.value.like(w.shape, accumulator_of(w.value.dtype()), "gradient");
  return {w.grad, !std::exchange(w.fresh, false)};
}

void Tape::give(const Var& x, const Tensor& dx) {
  if (!wants(x)) return;
  Tensor& g = grads_[static_cast<size_t>(x.id())];
  if (g.empty()) {
    g = dx;
    return;
  }
  if (!g.unique()) g = g.clone("gradient");
  accumulate(g, dx);
}

Tensor Tape::take_grad(const Var& x) {
  return std::exchange(grads_[static_cast<size_t>(x.id())], {});
}

}  // namespace anabranch
