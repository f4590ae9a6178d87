// In what the points of a sweep differ, as the axes of tables: not every key of the file, for many
// only follow from others.
#pragma once

#include <string>
#include <vector>

#include "runtime/sweep/record.h"

namespace anabranch {

// One quantity by one name, whatever a family's key for it. Streams, blocks and the label n are N;
// model.depth and model.layers are depth; else a key without its section.
std::string axis_name(const std::string& key);

struct SweepAxes {
  std::vector<std::string> names;                // "family" first
  std::vector<std::vector<std::string>> values;  // [point][axis]; empty: it has none of this

  // The place of a name; -1: no axis of this sweep.
  [[nodiscard]] int find(const std::string& name) const;

  // Whether its values, but for empty ones, are numbers.
  [[nodiscard]] bool is_numeric(size_t axis) const;
};

// Axes whose values vary and do not follow from those of one axis before; labels come before keys.
SweepAxes sweep_axes(const SweepRecord& record);

// Points of which each is what others are measured against: those of which some value, or the
// family, is `wanted` (or one of them).
struct BasePoint {
  size_t point = 0;
  size_t axis = 0;  // where it has the wanted value
};

std::vector<BasePoint> base_points(const SweepAxes& axes, const std::vector<std::string>& wanted);

// Whether a point differs from a base one and agrees with it wherever that has a value, but for the
// axis that makes it one.
bool is_based_on(const SweepAxes& axes, size_t point, const BasePoint& base);

}  // namespace anabranch
