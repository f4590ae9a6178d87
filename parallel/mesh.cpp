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

// The micro-batches that cut a pool into parts that fill the ranks.
std::string whole_pools(int ranks, int64_t pool_sequences) {
  std::string text;
  for (int64_t b = 1; b <= pool_sequences; ++b) {
    const bool legal = pool_sequences % b == 0 && ranks % (pool_sequences / b) == 0;
    if (legal) text += join(text.empty() ? "" : ", ", b);
  }
  return text;
}

}  // namespace

MeshShape mesh_shape(int ranks, int model, int64_t pool_sequences, int64_t micro_batch) {
  if (model < 1 || ranks % model != 0) {
    throw config_error("parallel.model is ", model, " but there are ", ranks,
                       " ranks; it must divide them: one of ", divisors(ranks));
  }
  if (pool_sequences < 1) {
    throw config_error("model.pool_sequences is ", pool_sequences, "; it must be at least 1");
  }
  AB_CHECK(micro_batch >= 1, "a micro-batch of ", micro_batch, " sequences");
  if (micro_batch % pool_sequences == 0) return {ranks / model, model, 1};
  if (pool_sequences % micro_batch != 0) {
    throw config_error("model.pool_sequences is ", pool_sequences, " and train.micro_batch ",
                       micro_batch, ": one must be a multiple of the other");
  }
  const int64_t pool = pool_sequences / micro_batch;
  if (ranks % pool != 0) {
    throw config_error("model.pool_sequences is ", pool_sequences, " and train.micro_batch ",
                       micro_batch, ", so a pool lies on ", pool, " ranks, but the ", ranks,
                       " ranks are no multiple of that; legal values of train.micro_batch: ",
                       whole_pools(ranks, pool_sequences));
  }
  return {ranks / model, model, static_cast<int>(pool)};
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
