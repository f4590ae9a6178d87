// Measures the machine at hand as a file of it says it: `bench comm --fit`.
#pragma once

#include <string>
#include <vector>

#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "parallel/topology.h"
#include "runtime/bench/comm_bench.h"
#include "runtime/planner/machine.h"

namespace anabranch {

// The curve and latency of a link from timings of collectives over `ranks` ranks: of each size the
// median bus bandwidth of all kinds, less the latency of the smallest.
//
//   timings  as bench_collectives() gives them
//   source   what the figures say of themselves
LinkFigures fit_link(const std::vector<CommTiming>& timings, int ranks, LinkLevel level,
                     const std::string& source);

// Matrix products of both types, attention, memory, how much of a reduction computing hides, and
// the links among the ranks of a host and between hosts, if there are such. Every rank measures at
// the same time, and the slowest counts. Collective; all ranks get the same.
Machine fit_machine(const std::string& name, Group& world, const Topology& topology,
                    const RankContext& context, const CommBenchOptions& options);

}  // namespace anabranch
