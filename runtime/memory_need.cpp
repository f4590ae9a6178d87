#include "runtime/memory_need.h"

#include <algorithm>
#include <fstream>
#include <unistd.h>

#include "core/base/error.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

std::string gib(double bytes) {
  const double tenths =
      std::max(0.1, static_cast<double>(static_cast<int64_t>(bytes / 0x1p30 * 10)) / 10);
  return number_text(tenths) + " GiB";
}

}  // namespace

MemoryNeed weights_memory(Model& model) {
  MemoryNeed need;
  model.visit([&](const Param& w) {
    const auto count = static_cast<double>(w.shape.count());
    const DType master = accumulator_of(w.compute);
    need.parameters += w.shape.count();
    need.weights += count * static_cast<double>(size_of(master));
    if (w.compute != master) need.weights += count * static_cast<double>(size_of(w.compute));
  });
  return need;
}

MemoryNeed training_memory(Model& model, int ranks) {
  MemoryNeed need = weights_memory(model);
  model.visit([&](const Param& w) {
    const double one = static_cast<double>(w.shape.count()) *
                       static_cast<double>(size_of(accumulator_of(w.compute)));
    need.gradients += one;
    need.moments += 2 * one;
    need.save += 3 * one / ranks;  // weights and moments, of which each rank writes a part
  });
  return need;
}

double physical_memory() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    double limit = 0;
    std::ifstream in(file);
    if (in >> limit && limit > 0) bytes = std::min(bytes, limit);  // "max" is no number
  }
  return bytes;
}

void require_memory(const MemoryNeed& need, int processes, double available) {
  const double all = need.total() * processes;
  if (all <= available) return;
  std::string parts = "weights " + gib(need.weights);
  if (need.gradients > 0) {
    parts += ", gradients " + gib(need.gradients) + ", moments " + gib(need.moments) +
             ", copy to save " + gib(need.save);
  }
  throw config_error(
      "the model does not fit this machine: ", counted(need.parameters, "parameter"), " take ",
      gib(need.total()), " (", parts, ") before any activation",
      processes > 1 ? join(", ", gib(all), " for the ", processes, " ranks here") : std::string(),
      "; there are ", gib(available),
      ". Lower model.layers or model.width, or take ranks with more memory each; a smaller ",
      "micro-batch does not help.");
}

}  // namespace anabranch
