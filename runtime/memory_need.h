// Whether a model fits this machine, asked before memory is taken for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/flat_store.h"
#include "runtime/config/values.h"
#include "runtime/models/model.h"

namespace anabranch {

// Bytes of one process that no micro-batch makes smaller. Doubles: a mistyped model may be huge.
struct MemoryNeed {
  int64_t parameters = 0;
  double weights = 0;  // masters, and copies of the compute type
  double masters = 0;  // of those, what lies beside what ops read
  double gradients = 0;
  double moments = 0;
  double save = 0;  // the copy from which a checkpoint is written

  MemoryNeed& operator+=(const MemoryNeed& other) {
    parameters += other.parameters;
    weights += other.weights;
    masters += other.masters;
    gradients += other.gradients;
    moments += other.moments;
    save += other.save;
    return *this;
  }

  [[nodiscard]] double total() const { return weights + gradients + moments + save; }
};

// The buckets of the model, of which a rank has what the parameters say, in such a layout, with a
// matrix optimizer if there is one; without memory.
std::vector<Bucket> planned_buckets(Model& model, const FlatStore::Options& layout,
                                    MatrixOptimizer matrix = MatrixOptimizer::kAdamw);

// To train the model so; and only to run it, on a device: a GPU keeps what ops read alone.
MemoryNeed training_memory(Model& model, const FlatStore::Options& layout,
                           MatrixOptimizer matrix = MatrixOptimizer::kAdamw);
MemoryNeed weights_memory(Model& model, Device where = {});

// This machine's memory in bytes, or what its control groups leave this process of it.
double physical_memory();

// The lowest limit in bytes among the control group of a process and those above it, of version 1
// or 2; infinity if there is none.
//
//   mount       where control groups are: /sys/fs/cgroup
//   membership  the process's list of them: /proc/self/cgroup
double control_group_memory(const std::filesystem::path& mount,
                            const std::filesystem::path& membership);

// "1.5 GiB".
std::string gib(double bytes);

// Throws Error (config, 78) with the figures if as many processes as share this machine need more
// than `available` bytes.
void require_memory(const MemoryNeed& need, int processes = 1,
                    double available = physical_memory());

}  // namespace anabranch
