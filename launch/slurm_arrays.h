// The runs of a sweep that were submitted to SLURM, and what its queue says of them.
//
//   runs/<sweep>/arrays/NAME.txt  the configurations of an array, a line a task, which stay as they
//   are runs/<sweep>/arrays/NAME.job  the array's job, once SLURM has taken it
//
// NAME is the name of the job too: so the queue tells of one whose submitter was killed before it
// could write which job it is, and of jobs that follow it under another number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/sweep/run_state.h"
#include "runtime/sweep/sweep_directory.h"

namespace anabranch {

struct SlurmQueue {
  std::map<std::string, JobOfRun> jobs;  // by run; what is not in the queue is not here
  std::string trouble;  // why the queue could not be asked: then all that was submitted is taken
                        // to be in it, but what has come to an end; empty: it was
};

// Asks only if something was submitted.
SlurmQueue ask_slurm(const SweepDirectory& directory);

struct SlurmWish {
  std::vector<std::string> runs;     // their ids
  std::vector<std::string> options;  // of sbatch
  int64_t at_once = 0;               // 0: as many as SLURM likes
  std::string name;                  // of the sweep
};

// Submits an array by launch/submit.sh and returns its job's number. Throws Error (I/O) if sbatch
// refuses, whose words are on the error stream. The directory's decisions are to be locked.
std::string submit_array(const SweepDirectory& directory, const SlurmWish& wish);

}  // namespace anabranch
