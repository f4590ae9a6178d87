#include "runtime/report/axes.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/config/number.h"
#include "runtime/sweep/sweep_file.h"

namespace anabranch {

namespace {

using Column = std::vector<std::string>;  // a value for each point

// Whether equal values of one column always come with equal ones of the other.
bool determines(const Column& one, const Column& other) {
  std::map<std::string, std::string> seen;
  for (size_t p = 0; p < one.size(); ++p) {
    if (seen.emplace(one[p], other[p]).first->second != other[p]) return false;
  }
  return true;
}

// Names in the order in which points bring them, labels first.
std::vector<std::string> names_of(const SweepRecord& record) {
  std::vector<std::string> names;
  for (const bool keys : {false, true}) {
    for (const RecordedPoint& point : record.points) {
      for (const auto& [key, value] : point.settings) {
        const std::string name = axis_name(key);
        if (is_config_key(key) != keys || std::ranges::count(names, name) > 0) continue;
        names.push_back(name);
      }
    }
  }
  return names;
}

Column column_of(const SweepRecord& record, const std::string& name) {
  Column column;
  for (const RecordedPoint& point : record.points) {
    std::string& value = column.emplace_back();
    for (const auto& [key, text] : point.settings) {
      if (value.empty() && axis_name(key) == name) value = text;
    }
  }
  return column;
}

}  // namespace

std::string axis_name(const std::string& key) {
  if (key == "n" || key == "model.streams" || key == "model.blocks") return "N";
  if (key == "model.depth" || key == "model.layers") return "depth";
  return key.substr(key.rfind('.') + 1);
}

int SweepAxes::find(const std::string& name) const {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

bool SweepAxes::is_numeric(size_t axis) const {
  return std::ranges::all_of(values, [axis](const Column& point) {
    double ignored = 0;
    return point[axis].empty() || parse_number(point[axis], ignored);
  });
}

SweepAxes sweep_axes(const SweepRecord& record) {
  SweepAxes axes;
  std::vector<Column> columns;
  const auto add = [&](const std::string& name, Column column) {
    axes.names.push_back(name);
    columns.push_back(std::move(column));
  };
  Column families;
  for (const RecordedPoint& point : record.points) families.push_back(point.family);
  add("family", families);
  for (const std::string& name : names_of(record)) {
    if (name == "family") continue;
    Column column = column_of(record, name);
    const bool follows = std::ranges::any_of(
        columns, [&column](const Column& earlier) { return determines(earlier, column); });
    if (!follows) add(name, std::move(column));
  }
  axes.values.resize(record.points.size());
  for (size_t p = 0; p < record.points.size(); ++p) {
    for (const Column& column : columns) axes.values[p].push_back(column[p]);
  }
  return axes;
}

std::vector<BasePoint> base_points(const SweepAxes& axes, const std::vector<std::string>& wanted) {
  std::vector<BasePoint> bases;
  for (size_t p = 0; p < axes.values.size(); ++p) {
    const auto is_wanted = [&wanted](const std::string& v) {
      return std::ranges::count(wanted, v) > 0;
    };
    const auto found = std::ranges::find_if(axes.values[p], is_wanted);
    if (found == axes.values[p].end()) continue;
    bases.push_back({p, static_cast<size_t>(found - axes.values[p].begin())});
  }
  return bases;
}

bool is_based_on(const SweepAxes& axes, size_t point, const BasePoint& base) {
  const Column &own = axes.values[point], &its = axes.values[base.point];
  if (point == base.point || own[base.axis] == its[base.axis]) return false;
  for (size_t a = 0; a < own.size(); ++a) {
    if (a == base.axis || its[a].empty()) continue;
    if (own[a] != its[a]) return false;
  }
  return true;
}

}  // namespace anabranch
