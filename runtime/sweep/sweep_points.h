// The points of a group as the sweep file gives them: which values each has, and what it is called.
#pragma once

#include <string>
#include <vector>

#include "runtime/sweep/sweep_file.h"

namespace anabranch {

struct SweepDraft {
  const SweepGroup* group = nullptr;
  std::string id, matches;         // `matches` as SweepPoint's
  std::vector<YamlNode> settings;  // labels and configuration keys, those of `set` first
};

// The product of a group's axes without what its rules leave out.
//
// Throws Error (config): more than 20,000 points, a rule on a key that the group does not have or
// one that matches none of them, no points left, or a pattern with a key that a point does not
// have.
std::vector<SweepDraft> draft_points(const SweepGroup& group);

}  // namespace anabranch
