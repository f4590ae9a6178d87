// What the fullest rank of a job has of its model, found out with no memory taken and no other rank
// there.
#pragma once

#include <memory>
#include <vector>

#include "parallel/mesh.h"
#include "runtime/config/config.h"
#include "runtime/memory_need.h"

namespace anabranch {

class PlannedPart {
 public:
  // The configured model as it would be constructed on rank 0 of such a mesh, which has the most
  // where parts do not come out even, and laid out on that of its data ranks which owns the most of
  // the state. Throws as make_model.
  PlannedPart(const Config& config, int64_t vocabulary, const MeshShape& shape);

  // Its parameters have shapes and no memory.
  [[nodiscard]] Model& model() { return *model_; }

  [[nodiscard]] std::vector<Bucket> buckets() { return planned_buckets(*model_, layout_, matrix_); }

  [[nodiscard]] MemoryNeed need() { return training_memory(*model_, layout_, matrix_); }

 private:
  FlatStore::Options layout_;
  MatrixOptimizer matrix_;
  std::unique_ptr<Group> model_ranks_, pool_ranks_;
  std::unique_ptr<Model> model_;
};

}  // namespace anabranch
