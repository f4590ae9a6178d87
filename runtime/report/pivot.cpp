#include "runtime/report/pivot.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

// Which axes are what.
struct TableShape {
  std::vector<size_t> tables, rows;
  std::optional<size_t> columns;
};

bool holds(const std::vector<size_t>& axes, size_t axis) {
  return std::ranges::count(axes, axis) > 0;
}

size_t axis_called(const SweepAxes& axes, const std::string& option, const std::string& name) {
  const int found = axes.find(name);
  if (found < 0) {
    throw usage_error(option, " ", quote(name), ": the points do not differ in it",
                      nearest_or_known(name, axes.names, "", "; they do in "));
  }
  return static_cast<size_t>(found);
}

// Whether no two families have a value of the axis in common.
bool parts_families(const SweepAxes& axes, size_t axis) {
  std::map<std::string, std::string> families;
  std::set<std::string> all;
  for (const auto& point : axes.values) {
    all.insert(point[0]);
    if (families.emplace(point[axis], point[0]).first->second != point[0]) return false;
  }
  return all.size() > 1;
}

TableShape shape_of(const SweepAxes& axes, const PivotWish& wish) {
  TableShape shape;
  if (!wish.columns.empty()) {
    shape.columns = axis_called(axes, "--columns", wish.columns);
  } else {
    for (const char* name : {"N", "depth", "size"}) {
      if (axes.find(name) >= 0 && std::ranges::count(wish.rows, name) == 0) {
        shape.columns = static_cast<size_t>(axes.find(name));
        break;
      }
    }
  }
  for (const std::string& name : wish.rows) {
    shape.rows.push_back(axis_called(axes, "--rows", name));
  }
  for (size_t a = 0; a < axes.names.size(); ++a) {
    if (a == shape.columns || holds(shape.rows, a)) continue;
    const bool is_table = !wish.rows.empty() || axes.names[a] == "size" ||
                          (a == 0 && shape.columns && parts_families(axes, *shape.columns));
    (is_table ? shape.tables : shape.rows).push_back(a);
  }
  if (shape.rows.empty()) std::swap(shape.rows, shape.tables);
  return shape;
}

// Distinct values in order: numbers rising, the empty one first.
std::vector<std::string> values_of(const SweepAxes& axes, size_t axis,
                                   const std::vector<size_t>& points) {
  std::vector<std::string> values;
  for (const size_t p : points) {
    const std::string& value = axes.values[p][axis];
    if (std::ranges::count(values, value) == 0) values.push_back(value);
  }
  const bool numeric = axes.is_numeric(axis);
  std::ranges::stable_sort(values, [numeric](const std::string& a, const std::string& b) {
    double x = 0, y = 0;
    if (a.empty() || b.empty()) return a.empty() && !b.empty();
    return numeric && parse_number(a, x) && parse_number(b, y) && x < y;
  });
  return values;
}

std::string title_of(const SweepAxes& axes, const TableShape& shape, size_t point) {
  std::string title;
  for (const size_t a : shape.tables) {
    if (axes.values[point][a].empty()) continue;
    title += (title.empty() ? "" : ", ") + axes.names[a] + " " + axes.values[point][a];
  }
  return title;
}

Pivot pivot_of(const SweepRecord& record, const SweepAxes& axes, const TableShape& shape,
               const std::vector<size_t>& points) {
  Pivot pivot;
  pivot.title = title_of(axes, shape, points[0]);
  if (shape.columns) {
    pivot.axis = axes.names[*shape.columns];
    pivot.columns = values_of(axes, *shape.columns, points);
  } else {
    pivot.columns = {""};
  }
  for (const size_t p : points) {
    const std::string label = shape.columns ? label_of(axes, p, shape.rows) : record.points[p].id;
    auto row = std::ranges::find(pivot.rows, label, &Pivot::Row::label);
    if (row == pivot.rows.end()) {
      pivot.rows.push_back({label, {}});
      row = std::prev(pivot.rows.end());
      row->cells.resize(pivot.columns.size());
    }
    const std::string value = shape.columns ? axes.values[p][*shape.columns] : "";
    const auto column = std::ranges::find(pivot.columns, value) - pivot.columns.begin();
    row->cells[static_cast<size_t>(column)].push_back(p);
  }
  return pivot;
}

}  // namespace

std::string label_of(const SweepAxes& axes, size_t point, const std::vector<size_t>& of) {
  std::string label, family;
  for (const size_t a : of) {
    const std::string& value = axes.values[point][a];
    if (value.empty()) continue;
    const bool says_it = a != 0 && !family.empty() && label == family && value.starts_with(family);
    if (a == 0) family = value;
    if (says_it) label.clear();
    label += (label.empty() ? "" : " ") + value;
  }
  return label;
}

std::vector<Pivot> make_pivots(const SweepRecord& record, const SweepAxes& axes,
                               const PivotWish& wish) {
  const TableShape shape = shape_of(axes, wish);
  std::vector<std::pair<std::string, std::vector<size_t>>> tables;
  for (size_t p = 0; p < record.points.size(); ++p) {
    const std::string title = title_of(axes, shape, p);
    auto table =
        std::ranges::find(tables, title, &std::pair<std::string, std::vector<size_t>>::first);
    if (table == tables.end()) table = tables.insert(table, {title, {}});
    table->second.push_back(p);
  }
  std::vector<Pivot> pivots;
  pivots.reserve(tables.size());
  for (const auto& [title, points] : tables) {
    pivots.push_back(pivot_of(record, axes, shape, points));
  }
  return pivots;
}

}  // namespace anabranch
