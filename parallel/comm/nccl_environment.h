// What of NCCL's environment we set, and what it comes to.
#pragma once

#include <string>
#include <vector>

namespace anabranch {

struct NcclVariable {
  std::string name, value;
  std::string origin;  // "environment", the file that sets it, or "anabranch"
};

// Sets almost nothing, and only what neither the environment nor a file of NCCL's sets: its sums
// have one order, and its warnings go to `log_directory`/nccl.HOST.PID.log, if that is not empty.
// Returns all variables that hold, by name, for the run's record. To be called
// before the first device_group(), while the process has one thread.
std::vector<NcclVariable> set_nccl_environment(const std::string& log_directory);

}  // namespace anabranch
