// The ops of a training step, each alone, at a model's shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor/pool.h"
#include "runtime/config/config.h"

namespace anabranch {

struct OpTiming {
  std::string name;    // "qkv dw", "attention backward"
  double seconds = 0;  // median
  double flops = 0;    // of products, attention's causal part; 0: not counted
  double bytes = 0;    // that the op has to read and write at least
};

// Times a block's linear products (y = x w^T, dx = dy w, dw += dy^T x; of all experts at once), its
// attention, attention within documents of 256 tokens on average (the operations of what it sees
// counted), the family's own ops, norms, GELU and addition, the embedding, the head with its loss,
// AdamW and the squared norm of a block's matrices, for one micro-batch in the configured
// precision. A backward op is what its tape runs: all its gradients, parameters' ones added to.
//
//   repeats  of each op, after one that does not count
std::vector<OpTiming> bench_ops(const Config& config, int64_t vocabulary, int64_t repeats,
                                const std::shared_ptr<Pool>& pool);

}  // namespace anabranch
