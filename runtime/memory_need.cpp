#include "runtime/memory_need.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <limits>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/base/error.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

// Of a limit file; infinity if there is none, or it says "max".
double limit_in(const fs::path& file) {
  double limit = 0;
  std::ifstream in(file);
  return in >> limit && limit > 0 ? limit : std::numeric_limits<double>::infinity();
}

}  // namespace

std::string gib(double bytes) {
  const double tenths =
      std::max(0.1, static_cast<double>(static_cast<int64_t>(bytes / 0x1p30 * 10)) / 10);
  return number_text(tenths) + " GiB";
}

double control_group_memory(const fs::path& mount, const fs::path& membership) {
  double least = std::numeric_limits<double>::infinity();
  std::ifstream in(membership);
  for (std::string line; std::getline(in, line);) {
    // hierarchy:controllers:path, where version 2 names no controllers
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers.find("memory") == std::string::npos) continue;
    const fs::path root = unified ? mount : mount / "memory";
    const char* const file = unified ? "memory.max" : "memory.limit_in_bytes";
    // A limit of any group above holds too.
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      least = std::min(least, limit_in(root / group / file));
      if (group.empty()) break;
    }
  }
  return least;
}

MemoryNeed weights_memory(Model& model, Device where) {
  MemoryNeed need;
  model.visit([&](const Param& w) {
    const auto count = static_cast<double>(w.shape.count());
    const DType master = accumulator_of(w.compute);
    need.parameters += w.shape.count();
    need.weights += count * static_cast<double>(size_of(w.compute));
    if (w.compute != master && where.is_cpu())
      need.masters += count * static_cast<double>(size_of(master));
  });
  need.weights += need.masters;
  return need;
}

std::vector<Bucket> planned_buckets(Model& model, const FlatStore::Options& layout,
                                    MatrixOptimizer matrix) {
  std::deque<Param> params;  // copies: the model keeps what it says of itself
  model.visit([&](const Param& w) { params.push_back(w); });
  std::vector<Param*> pointers;
  for (Param& w : params) {
    if (matrix == MatrixOptimizer::kAdamw) w.owner = Owner::kAdamw;
    pointers.push_back(&w);
  }
  return FlatStore::plan(pointers, layout);
}

MemoryNeed training_memory(Model& model, const FlatStore::Options& layout, MatrixOptimizer matrix) {
  MemoryNeed need;
  model.visit([&](const Param& w) { need.parameters += w.shape.count(); });
  for (const Bucket& b : planned_buckets(model, layout, matrix)) {
    const auto all = static_cast<double>(b.count), own = static_cast<double>(b.own.count);
    const DType master = accumulator_of(b.compute);
    const auto wide = static_cast<double>(size_of(master));
    const int moments = b.owner == Owner::kMatrix ? 1 : 2;
    if (b.compute != master) need.masters += own * wide;
    need.weights += all * static_cast<double>(size_of(b.compute));
    need.gradients += layout.lanes * all * wide;
    need.moments += moments * own * wide;
    const double written = b.sharded() ? own : all / b.ranks;  // each rank writes a part
    need.save += (1 + moments) * written * wide;
  }
  need.weights += need.masters;
  return need;
}

double physical_memory() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::min(bytes, control_group_memory("/sys/fs/cgroup", "/proc/self/cgroup"));
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
