#include "runtime/report/report_files.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "runtime/interchange/series_csv.h"
#include "runtime/models/cost_text.h"

namespace anabranch {

namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_of(const Interval& interval) {
  if (std::isnan(interval.low)) return nullptr;
  return {number(interval.low), number(interval.high)};
}

Json json_of(const Sample& sample) {
  return {{"count", sample.count}, {"mean", number(sample.mean)}, {"sd", number(sample.deviation)}};
}

Json json_of(const FittedConstant& constant) {
  return {{"value", number(constant.value)}, {"interval95", json_of(constant.interval)}};
}

Json json_of(const SizeSeries& series, const SweepRecord& record) {
  const ScalingLaw& law = series.law;
  Json entry = {{"series", series.label},
                {"over", series.over},
                {"points", Json::array()},
                {"runs", law.runs},
                {"sizes", law.sizes}};
  for (const size_t p : series.points) entry["points"].push_back(record.points[p].id);
  if (!law.refused.empty()) {
    entry["refused"] = law.refused;
    return entry;
  }
  entry["alpha"] = json_of(law.exponent);
  entry["E"] = law.has_floor ? json_of(law.floor) : Json();
  entry["A"] = number(law.scale());
  entry["size"] = law.size;
  entry["falling_at_size"] = json_of(law.falling);
  entry["residual"] = number(law.residual);
  return entry;
}

Json json_of(const SweepReport& report, size_t p) {
  const RecordedPoint& point = report.record.points[p];
  Json entry = {{"id", point.id}, {"family", point.family}, {"settings", Json::object()}};
  for (const auto& [key, value] : point.settings) entry["settings"][key] = value;
  if (!point.matches.empty()) entry["matches"] = point.matches;
  for (const auto& [name, value] : cost_fields(point.cost)) entry[name] = value;
  entry["steps"] = point.steps;
  entry["tokens"] = point.tokens();
  entry["planned"] = report.points[p].planned;
  entry["counted"] = report.points[p].runs.size();
  for (const ReportFigureSpec& spec : kReportFigures) {
    entry[std::string(spec.name)] = json_of(report.points[p].at(spec.id));
  }
  entry["runs"] = Json::array();
  for (const RunResult& run : report.runs) {
    if (run.run.point != p) continue;
    Json result = {{"id", run.run.id}, {"seed", run.run.seed}, {"state", run.state}};
    if (!run.counts()) result["left_out"] = run.left_out;
    for (const ReportFigureSpec& spec : kReportFigures) {
      result[std::string(spec.name)] = number(run.at(spec.id));
    }
    entry["runs"].push_back(std::move(result));
  }
  return entry;
}

// A row of the CSV file, cell by cell.
class CsvRow {
 public:
  void add(const std::string& text) {
    if (!is_first_) text_ += ',';
    text_ += csv_cell(text);
    is_first_ = false;
  }

  void add(double value) { add(csv_cell(value)); }

  void add(int64_t value) { add(std::to_string(value)); }

  [[nodiscard]] std::string line() const { return join(text_, "\n"); }

 private:
  std::string text_;
  bool is_first_ = true;
};

std::string csv_header(const SweepReport& report) {
  CsvRow row;
  for (const char* name :
       {"row", "point", "run", "seed", "state", "left_out", "planned", "counted"}) {
    row.add(std::string(name));
  }
  for (const std::string& axis : report.axes.names) row.add(axis);
  for (const auto& [name, value] : cost_fields({})) row.add(name);
  row.add(std::string("tokens"));
  for (const ReportFigureSpec& spec : kReportFigures) {
    row.add(std::string(spec.name));
    row.add(join(spec.name, "_sd"));
  }
  return row.line();
}

void add_point(CsvRow& row, const SweepReport& report, size_t p) {
  for (const std::string& value : report.axes.values[p]) row.add(value);
  for (const auto& [name, value] : cost_fields(report.record.points[p].cost)) row.add(value);
  row.add(report.record.points[p].tokens());
}

}  // namespace

std::string report_csv(const SweepReport& report) {
  std::string text = csv_header(report);
  for (const RunResult& run : report.runs) {
    CsvRow row;
    for (const std::string& cell :
         {std::string("run"), report.record.points[run.run.point].id, run.run.id,
          std::to_string(run.run.seed), run.state, run.left_out, std::string(), std::string()}) {
      row.add(cell);
    }
    add_point(row, report, run.run.point);
    for (const double value : run.figures) {
      row.add(value);
      row.add(std::string());
    }
    text += row.line();
  }
  for (size_t p = 0; p < report.points.size(); ++p) {
    CsvRow row;
    for (const std::string& cell : {std::string("point"), report.record.points[p].id, std::string(),
                                    std::string(), std::string(), std::string()}) {
      row.add(cell);
    }
    row.add(report.points[p].planned);
    row.add(std::ssize(report.points[p].runs));
    add_point(row, report, p);
    for (const Sample& sample : report.points[p].figures) {
      row.add(sample.mean);
      row.add(sample.deviation);
    }
    text += row.line();
  }
  return text;
}

std::string report_json(const SweepReport& report, const std::vector<SizeSeries>& series) {
  const auto& points = report.record.points;
  Json document = {{"sweep", report.record.name},
                   {"file", report.record.file},
                   {"points", Json::array()},
                   {"differences", Json::array()},
                   {"scaling_laws", Json::array()}};
  for (size_t p = 0; p < points.size(); ++p) document["points"].push_back(json_of(report, p));
  for (const Comparison& c : report.comparisons) {
    document["differences"].push_back({{"point", points[c.point].id},
                                       {"baseline", points[c.baseline].id},
                                       {"why", c.why},
                                       {"validation_loss", json_of(c.differences)},
                                       {"interval95", json_of(c.interval)},
                                       {"seeds_needed", c.needed == 0 ? Json() : Json(c.needed)}});
  }
  for (const SizeSeries& s : series) document["scaling_laws"].push_back(json_of(s, report.record));
  return document.dump(2) + "\n";
}

}  // namespace anabranch
