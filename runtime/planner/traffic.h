// What ranks send each other in a step, and how long that takes on a machine's links.
#pragma once

#include <string>
#include <vector>

#include "parallel/comm/group.h"
#include "runtime/planner/layout.h"
#include "runtime/planner/machine.h"
#include "runtime/planner/weights.h"

namespace anabranch {

// The ranks of a group on hosts: as many on each.
struct Placement {
  int ranks = 1, per_host = 1;
  int groups = 1;  // of its kind that share a host, and use its links at the same time

  [[nodiscard]] int hosts() const { return (ranks + per_host - 1) / per_host; }
};

// The axes of a mesh.
enum class MeshAxis : uint8_t { kAll, kData, kModel, kPool };
Placement placement(const Layout& layout, const Cluster& cluster, MeshAxis axis);

// When a collective runs, and so behind what it can hide.
enum class Moment : uint8_t {
  kGradients,  // behind the last backward of a step
  kWeights,    // updated ones, behind the next forward
  kStreams,    // chunk by chunk, behind the products of the region
  kExperts,    // nothing runs beside it; copies of the input too
  kControl     // small sums at a step's end
};

// A collective that runs `calls` times a step.
struct Transfer {
  std::string name;
  Moment moment{};
  CollectiveKind kind{};
  MeshAxis axis{};
  double bytes = 0;  // of the larger buffer of a rank, each time
  double calls = 0;

  // What a rank receives of others, each time: bytes (n - 1) / n, twice in an all-reduce. Only the
  // bytes of the transport, whatever the links.
  [[nodiscard]] double received(const Placement& on) const;
  // The part of that which comes from another host, over the ranks of a host on average.
  [[nodiscard]] double from_network(const Placement& on) const;
};

// The collectives of a step of one rank on a layout; none over one rank.
//
//   gradients   ring: 2 (R - 1) / R n b, over all ranks; of split parameters over `data`
//   zero 1      reduce-scatter of gradients, all-gather of what ops read
//   streams     gather: u, g in; U (fp32) out; backward dU in; ds (fp32), dg out. slice: Y, dY
//               for U, dU
//   copies      ids in, rows to spans behind the first; copies of a row home; mirrored, ds (fp32)
//   experts     a row once to each rank with one of its experts, z of each slot back; mirrored
//   choice      expert choice gathers its scores over the pool, or counts them (pool_choice.h)
//
// Recomputation runs the forward's again.
std::vector<Transfer> transfers(const Config& config, const WeightBytes& weights,
                                const Layout& layout, int64_t accumulation);

// Seconds of one call. Throws Error (config) if the machine has no link of a level it needs.
double seconds_of(const Transfer& transfer, const Placement& on, const Machine& machine);

}  // namespace anabranch
