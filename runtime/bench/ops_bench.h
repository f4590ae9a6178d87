// The ops of a training step, each alone, at a model's shapes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor/pool.h"
#include "runtime/config/config.h"
#include "runtime/planner/machine.h"

namespace anabranch {

struct OpTiming {
  std::string name;    // "qkv dw", "attention backward"
  double seconds = 0;  // median; 0: not run
  double flops = 0;    // of products, attention's causal part; 0: not counted
  double bytes = 0;    // that the op has to read and write at least
};

// Times a block's linear products (y = x w^T, dx = dy w, dw += dy^T x; of all experts at once), its
// attention, attention within documents of 256 tokens on average (the operations of what it sees
// counted), the family's own ops, norms, GELU and addition, the embedding, the head with its loss,
// AdamW and the squared norm of a block's matrices, for one micro-batch in the configured
// precision. A backward op is what its tape runs: all its gradients, parameters' ones added to.
//
//   repeats  of each op, after one that does not count; 0: none is run, so that operations and
//            bytes are known where the device is not
std::vector<OpTiming> bench_ops(const Config& config, int64_t vocabulary, int64_t repeats,
                                const std::shared_ptr<Pool>& pool);

// Seconds that an op takes on a machine at least: its operations at the peak of their type, its
// bytes at the memory's full speed.
struct OpBound {
  double products = 0, memory = 0;

  [[nodiscard]] double seconds() const { return std::max(products, memory); }

  [[nodiscard]] bool by_memory() const { return memory >= products; }
};

// For a rank that has the machine's host for itself. Throws Error (config) if the file has no peak
// of that type.
OpBound bound_of(const OpTiming& op, const Machine& machine, DType type);

}  // namespace anabranch
