// A trained tensor, and all that optimizers, reducers and checkpoints need to know of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/part.h"
#include "core/tensor/tensor.h"

namespace anabranch {

// Over which ranks a gradient is summed: ordinary parameters over all of them, parameters that
// are split over the `model` axis (streams, experts) over the `data` axis only.
enum class ReduceGroup : uint8_t { kAll, kData };

// Which kind of optimizer owns a parameter: one that works element by element, or one that needs
// a whole matrix. A model marks what a matrix optimizer may own; a run without one owns it as
// kAdamw.
enum class Owner : uint8_t { kAdamw, kMatrix };

// What a parameter is, as far as its learning rate goes.
enum class Role : uint8_t { kBody, kEmbedding, kHead, kResidual, kInputResidual, kKappa };

// How a parameter is filled before the first step. Random numbers are keyed by the run's seed, the
// parameter's name and the element's index in the logical tensor.
struct Init {
  enum class Kind : uint8_t { kConstant, kNormal, kUniform, kIdentity };
  Kind kind = Kind::kConstant;
  float value = 0;  // the constant, the standard deviation, or the bound

  static Init constant(float value) { return {Kind::kConstant, value}; }

  static Init normal(float std_dev) { return {Kind::kNormal, std_dev}; }

  static Init uniform(float bound) { return {Kind::kUniform, bound}; }

  // 1 on the diagonal of a matrix, else 0.
  static Init identity() { return {Kind::kIdentity, 1}; }
};

// A sum of gradients.
struct GradLane {
  Tensor grad;
  bool fresh = true;  // `grad` is stale: the next gradient overwrites it
};

// Its address is stable from construction on: tapes, stores and reducers point to it.
struct Param {
  std::string name;         // logical, unique in the model: "h.0.attn.c_attn.weight"
  Shape shape;              // of this rank's part
  Shape global_shape;       // of the logical tensor; equal to `shape` unless it is split
  int split_axis = 0;       // the axis of which ranks have parts
  int64_t slice_begin = 0;  // first index of that axis that is this rank's
  int64_t parts = 1;        // ranks that have parts of it; their extents differ by at most 1

  Init init;
  DType compute = DType::kF32;  // the type that ops read; fp32 for norms, biases, scalars
  ReduceGroup reduce = ReduceGroup::kAll;
  Owner owner = Owner::kAdamw;
  Role role = Role::kBody;
  int64_t matrices = 1;  // equal ones that it holds, stacked: q, k and v in one tensor are three
  bool wide = false;     // read in the accumulator's type in bf16 runs too: routers, gates
  bool decay = false;    // whether weight decay applies

  Tensor value;   // `compute`; round(master) in bf16 runs, else master itself
  Tensor master;  // fp32 (float64 in float64 runs): what the optimizer updates and a save keeps;
                  // of `shape`, or flat where this rank owns a run of its elements only
  int64_t master_begin = 0;  // the element of this part that `master` begins with
  Tensor grad;               // the master's type; summed over micro-batches and ranks
  bool fresh = true;         // `grad` is stale: the next gradient overwrites it
  // Of lane 1 and on, where gradients are kept apart until they are reduced; `grad` is lane 0.
  std::vector<GradLane> lanes = {};

  Param() = default;

  Param(std::string param_name, Shape param_shape, Init param_init, bool decays = false)
      : name(std::move(param_name)),
        shape(param_shape),
        global_shape(param_shape),
        init(param_init),
        decay(decays) {}

  // Leaves this rank the indices [begin, begin + extent) of `axis`, one of `ranks` such parts: its
  // gradient is summed over the ranks that have the same one. Before it has memory.
  void split(int axis, int64_t begin, int64_t extent, int64_t ranks);

  [[nodiscard]] Part part() const {
    const int64_t extent = shape.rank() > 0 ? shape[split_axis] : 1;
    return {global_shape, split_axis, slice_begin, extent};
  }
};

// State that a model keeps beside its parameters and no gradient moves: thresholds, moving
// averages. Small, equal on all ranks, saved with the weights.
struct Buffer {
  std::string name;  // logical, unique beside the parameters' names
  Tensor value;      // float64
};

}  // namespace anabranch
