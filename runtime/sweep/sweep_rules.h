// What a sweep file says beside its points: the key that another sweep chooses, and which points
// end early.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/values.h"

namespace anabranch {

// Of which loss of a run a rule speaks: of training, or of the validation split.
enum class LossKind : uint8_t { kLoss, kValidationLoss };

constexpr auto words_of(LossKind) {
  return std::array<std::string_view, 2>{"loss", "validation_loss"};
}

// Points that are clearly worse than others end early: runtime/sweep/stop_early.h has the rule.
struct EarlyStop {
  LossKind by = LossKind::kValidationLoss;
  double after_fraction = 0;  // of a run's tokens, before which nothing ends; or
  int64_t after_tokens = 0;   // so many of them
  double margin = 0.1;
  double keep = 0.5;
  std::vector<std::string> per;  // labels and keys; empty: all points are compared

  void visit(auto&& f) {
    f("by", by, "the loss that is compared");
    f("after_fraction", after_fraction, 0.0, 1.0, "of a run's tokens, before which nothing ends");
    f("after_tokens", after_tokens, int64_t{0}, kMaxCount, "the same in tokens");
    f("margin", margin, 0.0, 100.0, "nats by which others are better");
    f("keep", keep, 0.0, 1.0, "share of the points compared that must be better");
    f("per", per, "points with equal values of these are compared");
  }

  bool operator==(const EarlyStop&) const = default;
};

// A key whose value a pilot sweep has measured: runtime/sweep/choose.h has the rule.
struct ChooseRule {
  std::string where;  // in the file
  std::string key, from;
  std::vector<std::string> per;  // labels that the value may depend on; empty: one for all points
  LossKind by = LossKind::kValidationLoss;

  void visit(auto&& f) {
    f("key", key, "the configuration's key that is chosen");
    f("from", from, "the pilot's sweep file, by its path from this one");
    f("per", per, "labels and keys for whose values it is chosen apart");
    f("by", by, "the loss that is compared");
  }
};

}  // namespace anabranch
