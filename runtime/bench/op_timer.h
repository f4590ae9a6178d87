// Times ops one by one on random values, at a model's number of rows. A GPU is timed over several
// calls in a row, so that what a launch costs the host is hidden as it is in a step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/autograd/tape.h"
#include "core/nn/init.h"
#include "runtime/bench/ops_bench.h"

namespace anabranch {

// Operations and bytes of a forward and of its backward.
struct OpFigures {
  double flops = 0, bytes = 0, backward_flops = 0, backward_bytes = 0;
};

class OpTimer {
 public:
  //   rows     N, of a micro-batch
  //   type     the run's compute type
  //   repeats  of each op, after one that does not count; 0: none is run
  OpTimer(int64_t rows, DType type, int64_t repeats, std::shared_ptr<Pool> pool);

  [[nodiscard]] int64_t rows() const { return rows_; }

  [[nodiscard]] DType type() const { return type_; }

  // The accumulator's.
  [[nodiscard]] DType wide() const { return wide_; }

  [[nodiscard]] const std::shared_ptr<Pool>& pool() const { return pool_; }

  // Whether ops run; else tensors are for their shapes alone and parameters have no memory.
  [[nodiscard]] bool runs() const { return repeats_ > 0; }

  // Random values, which are not written if nothing runs: of those not a page is touched.
  [[nodiscard]] Tensor random(Shape shape, DType type) const;

  // Values for each row, that a gate or a router makes: there if nothing runs too, for routes and
  // what is picked by them have the sizes of what follows.
  [[nodiscard]] Tensor logits(int64_t columns) const;

  // [N, columns] of the compute type.
  [[nodiscard]] Tensor activations(int64_t columns) const {
    return random({rows_, columns}, type_);
  }

  // Bytes of so many activations, and of values of the accumulator's type.
  [[nodiscard]] double bytes(int64_t elements) const {
    return static_cast<double>(elements * size_of(type_));
  }

  [[nodiscard]] double wide_bytes(int64_t elements) const {
    return static_cast<double>(elements * size_of(wide_));
  }

  // Gives a parameter its first value and a gradient to add to.
  void make(Param& w) const;

  void time(const std::string& name, double flops, double moved, const std::function<void()>& f);

  // An op without a tape, and the backward of one with.
  void both(const std::string& name, const OpFigures& cost,
            const std::function<Var(Tape* tape)>& op);

  [[nodiscard]] std::vector<OpTiming> take() { return std::move(all_); }

  // `x` as an input of the tape, if there is one.
  static Var on(Tape* tape, const Tensor& x) { return tape != nullptr ? tape->input(x) : Var(x); }

 private:
  [[nodiscard]] bool on_gpu() const;
  // Returns when all that was started is done.
  void finish() const;

  int64_t rows_, repeats_;
  DType type_, wide_;
  std::shared_ptr<Pool> pool_;
  std::vector<OpTiming> all_;
};

}  // namespace anabranch
