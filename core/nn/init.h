// Memory and first values of parameters.
#pragma once

#include <memory>

#include "core/autograd/param.h"

namespace anabranch {

// The type in which ops read `w` in a run of compute type `type`: matrices have it, vectors and
// scalars stay in its accumulator type (float32 in float32 and bfloat16 runs, else float64).
void set_compute(Param& w, DType type);

// The same for every parameter of a layer or model.
template <class Module>
void set_compute(Module& module, DType type) {
  module.visit([type](Param& w) { set_compute(w, type); });
}

// Allocates the master and, if its type differs, the value of `w`: for tests and inference, where
// no store holds all parameters. Throws Error if w.compute does not go with `master_type`.
void allocate(Param& w, DType master_type, const std::shared_ptr<Pool>& pool = nullptr);

// Fills w.master as w.init says, and w.value with the same, rounded: all of it, also where this
// rank owns only some elements.
//
//   seed  the run's
//
// Element i of the logical tensor takes word i % 4 of Philox block i / 4 under the key (seed,
// name), in normal initialisation half of a Box-Muller pair of words. It is computed in float64, so
// all slices of a tensor, any number of threads, and all types agree. Throws Error if w.master is
// not allocated.
void initialise(Param& w, uint64_t seed);

// Moves what ops read of `w` into the memory of `pool` and lets go of the master: for inference on
// a GPU whose weights were made or read on the host.
void keep_value_in(Param& w, const std::shared_ptr<Pool>& pool);

// w.value = w.master rounded, where these are two buffers.
void round_to_value(Param& w);

}  // namespace anabranch
