#include "runtime/config/validate_deterministic.h"

#include <bit>

#include "core/base/error.h"
#include "parallel/lanes.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {
namespace {

constexpr const char* kMode = "train.deterministic is layout, which ";

bool is_power_of_two(int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); }

// Blocks of the tree that adds streams, and blocks of experts, must be equal. Copies of the input
// run on the rows of all ranks at once, in one lane (copy_region.h), so they may not be spread.
void check_parts(const Config& config, std::vector<std::string>& broken) {
  const int64_t model = std::max<int64_t>(config.parallel.model.value, 1);
  if (has_streams(config.model)) {
    if (config.parallel.stream_layout == StreamLayoutChoice::kSlice) {
      broken.push_back(join(kMode, "adds whole streams as a tree, and parallel.stream_layout is ",
                            "slice: use gather or auto"));
    }
    if (!is_power_of_two(config.model.cmollm.streams)) {
      broken.push_back(join(kMode, "adds streams as a balanced tree, and model.streams is ",
                            config.model.cmollm.streams, ": use a power of two"));
    }
  }
  if (model > 1 && input_copies(config.model) > 1) {
    broken.push_back(join(kMode,
                          "has no order for sums over copies of the input on several ranks, ",
                          "and parallel.model is ", model, ": use auto, or 1"));
    return;
  }
  const SplitLimit limit = split_limit(config);
  if (model > 1 && (!is_power_of_two(model) || limit.parts % model != 0)) {
    broken.push_back(
        join(kMode, "needs equal parts on a power of two of ranks, and parallel.model ", "is ",
             model, " beside ", limit.what, " ", limit.parts, ": use auto, or 1"));
  }
}

}  // namespace

bool is_of_any_layout(const Config& config) {
  return config.train.deterministic == Determinism::kLayout;
}

std::vector<std::string> check_any_layout(const Config& config) {
  if (!is_of_any_layout(config)) return {};
  std::vector<std::string> broken;
  const TrainConfig& train = config.train;
  if (train.precision == Precision::kBf16) {
    broken.push_back(join(
        kMode, "rounds nothing on its way, and train.precision is bf16: use fp32 ", "or fp64"));
  }
  if (train.grad_wire != GradWire::kFp32) {
    broken.push_back(join(kMode, "rounds nothing on its way, and train.grad_wire is ",
                          word_of(train.grad_wire), ": use fp32"));
  }
  if (train.micro_batch != 1) {
    broken.push_back(join(kMode, "adds sequence by sequence, and train.micro_batch is ",
                          train.micro_batch, ": use 1"));
  }
  if (pool_sequences(config.model) != 1) {
    broken.push_back(join(kMode, "needs pools that no ranks share, and model.pool_sequences is ",
                          pool_sequences(config.model), ": use 1"));
  }
  check_parts(config, broken);
  return broken;
}

void check_any_layout_ranks(const Config& config, int ranks) {
  if (!is_of_any_layout(config) || (is_power_of_two(ranks) && ranks <= kLanes)) return;
  throw config_error(kMode, "deals the sequences of a step to ", kLanes, " sums, and there are ",
                     ranks, " ranks: use 1, 2, 4 or ", kLanes);
}

}  // namespace anabranch
