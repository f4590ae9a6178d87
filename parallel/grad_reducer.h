// Sums gradients over ranks in buckets, each as soon as its last gradient exists, while backward
// goes on; and where ranks own slices of a bucket, gathers its values after their updates, while
// the next forward goes on: who reads a value waits for its bucket (Tensor::expect).
//
//   bucket   before the update                    after it, while others are updated
//   whole    all-reduce of its gradient           -
//   sharded  reduce-scatter: each rank its slice  all-gather of its values
//
// Where gradients are kept in lanes, all of them are all-reduced, which rounds nothing, and then
// added, in one order whatever the ranks: lanes.h.
//
// Buckets of one reduce group start in one order on every rank, whatever order gradients become
// ready in: each waits until all before it have started. Those of the other group do not wait for
// them, as ranks may have more or fewer parameters that others have not, and what all ranks reduce
// must start at one place among their other collectives. A parameter that a step does not use holds
// up its bucket and those after it until finish().
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/autograd/param.h"
#include "parallel/flat_store.h"
#include "parallel/mesh.h"

namespace anabranch {

// How well one step's reduction was hidden behind its backward.
struct ReduceTimes {
  double seconds = 0;  // that it took, waiting for peers included
  double waited = 0;   // that finish() waited for it, or the GPU did

  // The part of the reduction that the step did not wait for; 1 if there was nothing to do.
  [[nodiscard]] double hidden() const {
    return seconds > 0 ? (seconds > waited ? 1 - waited / seconds : 0) : 1;
  }
};

class GradReducer {
 public:
  // Keeps references to both, which must be of the same ranks.
  //
  //   wire  kF32: gradients travel as they are; kBF16: rounded to bf16, summed in fp32, rounded
  //         once more, half the bytes. train.grad_wire
  GradReducer(FlatStore& store, const Mesh& mesh, DType wire = DType::kF32);

  // Before the backward of a step's last micro-batch.
  void arm();

  // For Tape::on_grad_ready: nothing until armed, then starts what can start.
  void ready(Param& w);

  // Reduces what is left and waits for all. A gradient that nothing wrote in this step counts as
  // zero. Afterwards every gradient that this rank owns is the sum over its ranks, what else a
  // sharded bucket holds is of no use, and none is fresh. All values are here.
  void finish();

  // After the update of a bucket: starts to gather its values. All ranks call it in one order: that
  // in which a forward needs them.
  void gather(int bucket);
  // Waits until all values that were started have come.
  void finish_gather();

  // Of the last finish(), as far as it is done: on a GPU, once its results are on the host.
  [[nodiscard]] ReduceTimes times() const;

  // Buckets started since arm().
  [[nodiscard]] int started() const { return static_cast<int>(next_[0] + next_[1]); }

 private:
  struct Flight {
    int waiting = 0;  // parameters whose gradient is not there yet
    Tensor wire;      // what travels, if that is not the gradient itself
    Work work;
  };

  struct Arrival {
    Tensor value;
    Work work;
  };

  // Starts the buckets of a group that come next, as far as their gradients are there.
  void start_ready(ReduceGroup reduce);
  void start(size_t bucket);
  void land(size_t bucket);
  static void settle(Param& w);

  FlatStore& store_;
  const Mesh& mesh_;
  DType wire_;
  bool armed_ = false;
  std::array<std::vector<size_t>, 2> order_;  // by reduce group, its buckets
  std::array<size_t, 2> next_{};              // and the first that has not started
  std::vector<Flight> flights_;               // by bucket
  std::vector<Arrival> arrivals_;
  std::vector<bool> ready_;                         // by entry
  std::unordered_map<const Param*, size_t> entry_;  // never iterated
};

}  // namespace anabranch
