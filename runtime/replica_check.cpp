#include "runtime/replica_check.h"

#include <algorithm>
#include <map>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "parallel/topology.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {

// The checksums of values and masters, side by side.
int64_t checksum(const Replica& replica) {
  uint64_t sum = 0;
  for (const Tensor& t : replica.tensors) {
    Tensor bytes = t.on_host();  // only read
    sum = sum << 32 | crc32c(bytes.raw(), t.bytes());
  }
  return static_cast<int64_t>(sum);
}

// Of one group: who differs from most, in which replica first, and in how many.
struct Difference {
  std::vector<int> ranks;  // of the group; all of them if no value has a majority
  bool majority = true;
  size_t first = 0, count = 0;
};

// sums: [ranks, replicas].
Difference compare(const Tensor& sums, int ranks, size_t replicas) {
  Difference found;
  for (size_t i = 0; i < replicas; ++i) {
    std::map<int64_t, std::vector<int>> by_sum;
    for (int r = 0; r < ranks; ++r) {
      by_sum[sums.data<int64_t>()[static_cast<size_t>(r) * replicas + i]].push_back(r);
    }
    if (by_sum.size() == 1) continue;
    if (found.count++ > 0) continue;
    found.first = i;
    found.majority = std::ranges::any_of(
        by_sum, [&](const auto& entry) { return 2 * std::ssize(entry.second) > ranks; });
    for (const auto& [sum, of_sum] : by_sum) {
      if (found.majority && 2 * std::ssize(of_sum) > ranks) continue;
      found.ranks.insert(found.ranks.end(), of_sum.begin(), of_sum.end());
    }
    std::ranges::sort(found.ranks);
  }
  return found;
}

// What one group finds; empty: its ranks agree. `name_of` names its ranks.
template <class NameOf>
std::string check_group(Group& group, const std::vector<const Replica*>& replicas,
                        const NameOf& name_of) {
  const auto n = std::ssize(replicas);
  if (group.size() == 1 || n == 0) return "";
  Tensor mine({1, n}, DType::kI64), all({group.size(), n}, DType::kI64);
  for (int64_t i = 0; i < n; ++i) {
    mine.data<int64_t>()[i] = checksum(*replicas[static_cast<size_t>(i)]);
  }
  group.all_gather(all, mine).wait();
  const Difference found = compare(all, group.size(), replicas.size());
  if (found.count == 0) return "";
  std::string who;
  for (const int r : found.ranks) who += (who.empty() ? "" : ", ") + name_of(r);
  return join(who,
              found.majority ? join(" differs from the other ",
                                    counted(group.size() - std::ssize(found.ranks), "rank"))
                             : std::string(" differ from each other"),
              " in ", replicas[found.first]->name,
              found.count > 1
                  ? join(" and ", counted(static_cast<int64_t>(found.count) - 1, "other parameter"))
                  : std::string());
}

}  // namespace

std::vector<Replica> replicas_of(Model& model, bool whole_masters) {
  std::vector<Replica> replicas;
  model.visit([&](Param& w) {
    Replica replica{w.name, w.reduce, {w.value}};
    if (whole_masters && w.compute != w.master.dtype()) replica.tensors.push_back(w.master);
    replicas.push_back(std::move(replica));
  });
  model.visit_buffers([&](Buffer& b) {
    replicas.push_back({b.name, ReduceGroup::kAll, {b.value}});
  });
  return replicas;
}

void check_replicas(const Mesh& mesh, const std::vector<Replica>& replicas,
                    const std::vector<std::string>& names, CheckedSteps steps) {
  const int model = mesh.shape().model, column = mesh.all().rank() % model;
  std::string found;
  for (const ReduceGroup kind : {ReduceGroup::kAll, ReduceGroup::kData}) {
    std::vector<const Replica*> of_kind;
    for (const Replica& replica : replicas) {
      if (replica.ranks == kind) of_kind.push_back(&replica);
    }
    const auto name_of = [&](int r) {
      return names[static_cast<size_t>(kind == ReduceGroup::kAll ? r : r * model + column)];
    };
    const std::string text = check_group(mesh.reduce(kind), of_kind, name_of);
    if (found.empty()) found = text;
  }
  // One column of the mesh may have found what the others cannot see.
  for (const std::string& text : gather_text(mesh.all(), found)) {
    if (text.empty()) continue;
    const bool begun = steps.last_good >= 0;
    throw Error(Fault::kInternal,
                join("weights that ranks share are not equal after step ", steps.now,
                     begun ? join(", but were after step ", steps.last_good)
                           : std::string(", where this job begins"),
                     ": ", text, ". Memory or processor of a host is faulty: leave it out, ",
                     begun ? join("remove checkpoints later than step ", steps.last_good, ", ")
                           : std::string(),
                     "and run again."));
  }
}

}  // namespace anabranch
