// What `doctor` looks at: one machine, and the ranks of a job together.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "launch/rank_process.h"

namespace anabranch {

struct Finding {
  std::string name;
  bool good;
  std::string what;
  Fault fault = Fault::kIo;  // the exit code if it is not good
};

// The folder, or the nearest one above it that is there: a run directory may still have to be made.
std::string nearest_folder(const std::string& folder);

// GPUs, of which none is amiss where one is wanted, cores, memory, and whether `folder` takes what
// a checkpoint writes.
std::vector<Finding> examine_host(const std::string& folder, bool wants_gpu);

// Collective: the ranks of this job, the time that it has left, their clocks, whether all see
// `folder` as one, and whether sums over all and rows from each to each come out right. What one
// host alone finds amiss in itself is there under its name. Equal on all ranks.
//
//   mine  what examine_host() has found on this rank's host
//
// Throws Error (peer lost, 69) if a rank does not answer for a minute.
std::vector<Finding> examine_ranks(RankProcess& process, const std::string& folder,
                                   const std::vector<Finding>& mine);

// How long the job may still run, as SLURM says.
Finding time_left();

}  // namespace anabranch
