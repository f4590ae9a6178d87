// A key's value for each size, as a pilot sweep has measured it to be best.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/sweep/record.h"
#include "runtime/sweep/stop_early.h"
#include "runtime/sweep/sweep_rules.h"

namespace anabranch {

// The value chosen for points that have the same labels.
struct Chosen {
  std::string value;
  double loss = 0;  // mean over the pilot's runs of that value
  int64_t runs = 0;
  bool at_edge = false;  // the pilot's smallest or largest: a better one may lie beyond
};

// By the values of a rule's `per`, in that order.
using Choices = std::map<std::vector<std::string>, Chosen>;

// For each of the pilot's combinations of the labels `per`, the value of `key` whose runs, over
// seeds and whatever else the pilot varies, have the lowest mean of the last loss (run_loss.h); of
// equal means the smallest value. Values that the pilot's own rule has stopped are out.
//
//   runs  as record.runs
//
// Throws Error (config): values that are no numbers, a point without the key or a label, runs that
// have not done all their steps or whose loss is not finite, by their ids.
Choices choose(const ChooseRule& rule, const SweepRecord& pilot, const std::vector<RunSoFar>& runs);

// The same from a pilot's directory. Throws data_error too, if there is no record of it, or it is
// damaged.
Choices choose_from(const ChooseRule& rule, const std::string& folder);

}  // namespace anabranch
