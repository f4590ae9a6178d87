// Reverse-mode differentiation by a tape: a list of coarse ops, in the order they ran, each with a
// hand-written backward.
//
// A Var is a Tensor and its place on a Tape. Ops take Vars and record one node on the tape of their
// inputs; with no tape they only compute (inference). backward() walks the list from its end, so
// every rank that ran the same program runs the same backward, collectives included, in the same
// order. There is no second derivative.
//
// Gradients are destination-passed: a backward asks the tape where to write (`tape.grad(x)`) and is
// told to overwrite or to accumulate. Fan-in, micro-batches and fp32 gradients of bf16 weights then
// need no extra pass over memory.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/autograd/param.h"
#include "core/base/trace.h"
#include "core/tensor/tensor.h"

namespace anabranch {

class Tape;

class Var {
 public:
  Var() = default;

  Var(Tensor value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): constant

  Var(Tensor value, Tape* tape, int id) : value_(std::move(value)), tape_(tape), id_(id) {}

  [[nodiscard]] const Tensor& value() const { return value_; }

  [[nodiscard]] const Shape& shape() const { return value_.shape(); }

  [[nodiscard]] int64_t dim(int axis) const { return value_.dim(axis); }

  [[nodiscard]] DType dtype() const { return value_.dtype(); }

  [[nodiscard]] Tape* tape() const { return tape_; }

  [[nodiscard]] int id() const { return id_; }

 private:
  Tensor value_;
  Tape* tape_ = nullptr;
  int id_ = -1;
};

// Where a backward writes one gradient.
struct GradSink {
  Tensor out;
  bool accumulate;  // true: out += g, false: out = g
};

class Tape {
 public:
  // Adds to the gradients of its op's inputs, given the gradient of its output. What it captures is
  // exactly what the op keeps alive until backward.
  using Backward = std::function<void(Tape& tape, const Tensor& dy)>;
  // The same for several outputs. An output that nothing used has an empty gradient; a gradient
  // that no one else holds (`unique()`) may be written in place and handed on with give().
  using BackwardMany = std::function<void(Tape& tape, std::span<Tensor> dys)>;

  enum class Mode : uint8_t {
    kRecord,    // keep what backward needs
    kDry,       // compute and note the parameters, keep nothing: the forward of recompute()
    kRecompute  // the second run of a forward, inside backward: metrics are not written again
  };

  // With a trace that is on, every op is a span: forward, the time since the op before it was
  // recorded; backward, the time that its backward takes.
  explicit Tape(Mode mode = Mode::kRecord, Trace* trace = nullptr);

  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A leaf whose gradient can be read with take_grad() after backward().
  Var input(Tensor value);

  // Records one op and returns its output. `params` are those it reads; `op` is a string literal.
  Var record(const char* op, Tensor y, std::vector<Param*> params, Backward backward);
  std::vector<Var> record_many(const char* op, std::vector<Tensor> ys, std::vector<Param*> params,
                               BackwardMany backward);

  // Runs the tape from its end with gradient `dy` of `y`, freeing each node's saved tensors as it
  // goes. The first form seeds a scalar loss with 1. An Error names the op it came from.
  void backward(const Var& loss);
  void backward(const Var& y, Tensor dy);

  // Has the gradient of `x` made in the accumulator's type: where it is a partial sum that other
  // ranks add to. Its producer's backward, and the ops that read it, must expect that.
  void widen_grad(const Var& x);

  // Of Param's gradients, to which one the backwards of the ops that come next add: whoever sums
  // gradients in an order of its own keeps them apart. In a backward, that of its op.
  void set_lane(int lane) { lane_ = lane; }

  [[nodiscard]] int lane() const { return lane_; }

  // For backwards: whether `x` is on this tape, so that a gradient of it is wanted.
  [[nodiscard]] bool wants(const Var& x) const { return x.tape() == this; }

  // For backwards: where to write the gradient of `x` or of `w`.
  GradSink grad(const Var& x);
  // That of `w` in the lane of the op. Throws Error if it has no such lane.
  GradSink grad(Param& w);
  // For backwards: `dx` is the gradient of `x`; taken without a copy if it is the first.
  void give(const Var& x, const Tensor& dx);

  // The gradient of a leaf, or of any Var whose producer has not run its backward yet.
  Tensor take_grad(const Var& x);

  // Called when the last op that used a parameter has run its backward: once per parameter, tied
  // ones included.
  std::function<void(Param&)> on_grad_ready;

  // True in the second run of a forward: then metrics, thresholds and loss sums are not written.
  [[nodiscard]] bool recomputing() const { return mode_ == Mode::kRecompute; }

  [[nodiscard]] Mode mode() const { return mode_; }

  [[nodiscard]] Trace* trace() const { return trace_; }

  // In order of first use: the order must not differ between ranks.
  [[nodiscard]] const std::vector<Param*>& params_used() const { return params_; }

 private:
  struct Node {
    const char* op = "";
    int first_output = 0, outputs = 0, lane = 0;
    std::vector<Param*> params;
    BackwardMany backward;
  };

  void run(Node& node);

  [[nodiscard]] bool traced() const { return trace_ != nullptr && trace_->on(); }

  Mode mode_;
  Trace* trace_;
  int lane_ = 0;
  Trace::Clock::time_point forward_begin_;  // of the op that will be recorded next
  std::vector<Node> nodes_;
  std::vector<Tensor> grads_;   // by Var id, empty until needed
  std::vector<int> wide_;       // ids whose gradients are in the accumulator's type, ascending
  std::vector<Param*> params_;  // each parameter used, in order of first use
  std::unordered_map<const Param*, int> uses_;
};

// The tape of an op's inputs: the first that is not null.
template <class... Vars>
Tape* tape_of(const Vars&... vars) {
  Tape* tape = nullptr;
  ((tape = tape != nullptr ? tape : vars.tape()), ...);
  return tape;
}

}  // namespace anabranch
