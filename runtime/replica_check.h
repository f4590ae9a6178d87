// Whether the ranks still have the same weights where they should: a flipped bit in one rank's
// memory spreads silently, and is found here by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "runtime/models/model.h"

namespace anabranch {

// Tensors that all ranks of one group have alike, under one name.
struct Replica {
  std::string name;
  ReduceGroup ranks = ReduceGroup::kAll;
  std::vector<Tensor> tensors;
};

// The parameters of a model, their masters too where those are whole, and its buffers. Views.
std::vector<Replica> replicas_of(Model& model, bool whole_masters);

// The step that is looked at, and the last that was good; -1: none was looked at.
struct CheckedSteps {
  int64_t now = 0, last_good = -1;
};

// Compares checksums over each replica's group, by majority. Collective. Throws Error (internal,
// 70) on all ranks alike if any differ, naming the ranks and the first replica.
//
//   names  "rank 3 on h2", by rank of mesh.all()
void check_replicas(const Mesh& mesh, const std::vector<Replica>& replicas,
                    const std::vector<std::string>& names, CheckedSteps steps);

}  // namespace anabranch
