// Which ranks share a host, what part of its cores each gets, and whether all ranks agree.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "parallel/comm/group.h"

namespace anabranch {

struct Topology {
  std::vector<std::string> hosts;  // by rank
  int local_rank = 0;              // among the ranks of this host
  int local_size = 1;
  int threads = 1;  // this rank's share of the cores it may run on
};

// Collective. `threads` is OMP_NUM_THREADS if that is set.
Topology find_topology(Group& world);

// How many of a host's cores are one rank's: each core goes to one of the ranks that may run on it,
// in turn.
//
//   masks       by local rank, the cores it may run on; equal unless the ranks were bound
//   local_rank  whose share
//
// At least 1.
int share_of_cores(const std::vector<std::vector<int>>& masks, int local_rank);

// The cores that this thread may run on.
std::vector<int> allowed_cores();

// Collective: every rank's text, by rank.
std::vector<std::string> gather_text(Group& group, const std::string& text);

// Collective: the lines that any rank's text has.
std::set<std::string> lines_of_all(Group& group, const std::string& text);

// Collective: throws Error (configuration) on every rank unless all pass the same value, naming a
// rank that differs, its host, and both ranks' first line that differs.
//
//   what  names the value: "the resolved configuration", "the build"
void require_same(Group& group, const std::string& what, const std::string& value);

}  // namespace anabranch
