// What every kind of group must do: run by each rank of a group of threads and of an MPI job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/group.h"

namespace anabranch::test {

struct GroupCheck {
  std::string name;
  std::function<void(Group&)> run;
};

std::vector<GroupCheck> group_checks();

}  // namespace anabranch::test
