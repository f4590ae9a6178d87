#include "parallel/mesh.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"

namespace anabranch {
namespace {

std::string divisors(int n) {
  std::string text;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) text += join(text.empty() ? "" : ", ", d);
  }
  return text;
}

}  // namespace

MeshShape mesh_shape(int ranks, int model, int pool_sequences) {
  if (model < 1 || ranks % model != 0) {
    throw config_error("parallel.model is ", model, " but there are ", ranks,
                       " ranks; it must divide them: one of ", divisors(ranks));
  }
  if (pool_sequences < 1) {
    throw config_error("model.pool_sequences is ", pool_sequences, "; it must be at least 1");
  }
  const int pool = std::min(ranks, pool_sequences);
  if (ranks % pool != 0) {
    throw config_error("model.pool_sequences is ", pool_sequences, ", so a pool lies on ", pool,
                       " ranks, but the ", ranks, " ranks are no multiple of that; use one of ",
                       divisors(ranks), ", or more than ", ranks);
  }
  if (pool_sequences % pool != 0) {
    throw config_error("model.pool_sequences is ", pool_sequences, ", which ", pool,
                       " ranks cannot share evenly; use a multiple of ", pool);
  }
  return {ranks / model, model, pool};
}

Mesh::Mesh(Group& world, MeshShape shape) : shape_(shape), all_(world) {
  const int size = world.size(), rank = world.rank();
  if (shape.data < 1 || shape.model < 1 || shape.data * shape.model != size) {
    throw config_error("a mesh of data ", shape.data, " x model ", shape.model, " has ",
                       shape.data * shape.model, " ranks but there are ", size,
                       "; parallel.model must be one of ", divisors(size));
  }
  if (shape.pool < 1 || size % shape.pool != 0) {
    throw config_error("a pool of ", shape.pool, " ranks does not divide the ", size,
                       " ranks; use one of ", divisors(size));
  }
  model_ = world.split(rank / shape.model, rank);
  data_ = world.split(rank % shape.model, rank);
  pool_ = world.split(rank / shape.pool, rank);
}

}  // namespace anabranch
