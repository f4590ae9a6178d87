// The ranks as a grid with two axes, and the groups along them.
//
// `model` ranks hold the parts of one model's streams or experts; they are consecutive, so that
// what travels most stays within a host. `data` ranks hold the same parts. Every rank owns
// different sequences whatever the shape: ordinary parameters are reduced over all ranks, split
// ones over `data` only.
#pragma once

#include <memory>

#include "core/autograd/param.h"
#include "parallel/comm/group.h"

namespace anabranch {

struct MeshShape {
  int data = 1;
  int model = 1;
  int pool = 1;  // consecutive ranks whose sequences form one pool of tokens for experts
};

// The shape of `ranks` ranks; `data` follows. Throws Error (configuration) with the legal values
// if it does not come out even.
//
//   model           parallel.model
//   pool_sequences  model.pool_sequences: how many sequences, consecutive in the global order, are
//                   one pool
//   micro_batch     train.micro_batch: sequences of a rank. Whole pools of them stay on the rank; a
//                   larger pool lies on pool_sequences / micro_batch ranks
MeshShape mesh_shape(int ranks, int model, int64_t pool_sequences, int64_t micro_batch);

class Mesh {
 public:
  // Collective. Keeps `world` by reference. Throws Error (configuration) if `shape` does not have
  // as many ranks as `world`.
  Mesh(Group& world, MeshShape shape);

  [[nodiscard]] const MeshShape& shape() const { return shape_; }

  [[nodiscard]] Group& all() const { return all_; }

  [[nodiscard]] Group& data() const { return *data_; }

  [[nodiscard]] Group& model() const { return *model_; }

  [[nodiscard]] Group& pool() const { return *pool_; }

  // Over whom gradients of parameters of that kind are summed.
  [[nodiscard]] Group& reduce(ReduceGroup kind) const {
    return kind == ReduceGroup::kAll ? all_ : *data_;
  }

 private:
  MeshShape shape_;
  Group& all_;
  std::unique_ptr<Group> data_, model_, pool_;
};

}  // namespace anabranch
