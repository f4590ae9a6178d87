// What every kind of group must do: run by each rank of a group of threads, of an MPI job, and of a
// group of GPUs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/group.h"
#include "tests/support/devices.h"

namespace anabranch::test {

struct GroupCheck {
  std::string name;
  // With tensors of a device of the rank's own.
  std::function<void(Group&, const TestDevice& on)> run;
  bool gpu = true;  // whether it is so on GPUs
};

std::vector<GroupCheck> group_checks();

}  // namespace anabranch::test
