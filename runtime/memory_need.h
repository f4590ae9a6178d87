// Whether a model fits this machine, asked before memory is taken for it.
#pragma once

#include <cstdint>

#include "runtime/models/model.h"

namespace anabranch {

// Bytes of one process that no micro-batch makes smaller. Doubles: a mistyped model may be huge.
struct MemoryNeed {
  int64_t parameters = 0;
  double weights = 0;  // masters, and copies of the compute type
  double gradients = 0;
  double moments = 0;
  double save = 0;  // the copy from which a checkpoint is written

  [[nodiscard]] double total() const { return weights + gradients + moments + save; }
};

// To train the model as one of `ranks`; and only to run it.
MemoryNeed training_memory(Model& model, int ranks);
MemoryNeed weights_memory(Model& model);

// This machine's memory in bytes, or what the control group leaves this process of it.
double physical_memory();

// Throws Error (config, 78) with the figures if as many processes as share this machine need more
// than `available` bytes.
void require_memory(const MemoryNeed& need, int processes = 1,
                    double available = physical_memory());

}  // namespace anabranch
