#include "monitoring/run_page.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "core/base/error.h"
#include "monitoring/charts.h"
#include "monitoring/html_page.h"

namespace anabranch {

namespace {

using Course = RunHistory::Course;

std::string text_of(const char* form, double value) {
  if (!std::isfinite(value)) return "\u2013";
  std::array<char, 64> digits{};
  std::snprintf(digits.data(), digits.size(), form, value);
  return digits.data();
}

std::string percent(double ratio) { return text_of("%.1f%%", 100 * ratio); }

// "2 d 3 h", "1:02:03".
std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "\u2013";
  const auto whole = static_cast<int64_t>(seconds);
  const auto two = [](int64_t n) { return join(n < 10 ? "0" : "", n); };
  if (whole >= 172800) return join(whole / 86400, " d ", whole % 86400 / 3600, " h");
  if (whole < 3600) return join(whole / 60, ":", two(whole % 60));
  return join(whole / 3600, ":", two(whole / 60 % 60), ":", two(whole % 60));
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The run's last steps count: they are as the coming ones will be.
double seconds_left(const Metrics& metrics, const RunHistory& history) {
  const double left = metrics.value(Metric::kStepsPlanned) - metrics.value(Metric::kStep);
  const Course seconds = history.seconds();
  const size_t most = std::min<size_t>(seconds.points.size(), 8);
  if (most == 0) return NAN;
  double sum = 0;
  for (size_t i = 0; i < most; ++i) sum += seconds.points[seconds.points.size() - 1 - i].second;
  return std::max(left, 0.0) * sum / static_cast<double>(most);
}

std::string step_attribute(const Metrics& metrics) {
  const double step = metrics.value(Metric::kStep);
  return join("data-step=\"", std::isfinite(step) ? text_of("%.0f", step) : "0", "\"");
}

ChartSeries named(const std::string& name, const Course& course) { return {name, course.points}; }

// Where the time of a step goes; what is none of the others is the rest.
std::vector<ChartSeries> step_parts(const RunHistory& history) {
  constexpr std::array<std::pair<Metric, std::string_view>, 3> kParts{
      {{Metric::kComputeSeconds, "median"},
       {Metric::kCommunicationWaitSeconds, "median"},
       {Metric::kDataWaitSeconds, "median"}}};
  const std::vector<Course> courses = history.together(kParts);
  std::vector<ChartSeries> parts{named("compute", courses[0]), named("communication", courses[1]),
                                 named("data", courses[2])};
  ChartSeries rest = named("rest", courses[3]);
  for (size_t k = 0; k < rest.points.size(); ++k) {
    for (const ChartSeries& part : parts) rest.points[k].second -= part.points[k].second;
    rest.points[k].second = std::max(rest.points[k].second, 0.0);
  }
  parts.push_back(std::move(rest));
  return parts;
}

std::vector<ChartSeries> losses(const RunHistory& history) {
  std::vector<ChartSeries> all{named("training", history.course(Metric::kLoss))};
  for (const Course& course : history.validations()) {
    const bool ahead = course.metric == Metric::kValidationLossLookingAhead;
    const std::string of = course.name == "all" ? "" : " " + course.name;
    all.push_back(named((ahead ? "looking ahead" : "validation") + of, course));
  }
  return all;
}

std::string validation_text(const RunHistory& history) {
  for (const Course& course : history.validations())
    return text_of("%.4f", course.points.back().second);
  return "\u2013";
}

std::vector<HtmlPage::Tile> run_tiles(const Metrics& metrics, const RunHistory& history) {
  const auto value = [&](Metric metric) { return metrics.value(metric); };
  const double step = value(Metric::kStep), planned = value(Metric::kStepsPlanned);
  double skipped = 0;
  for (const Metrics::Series& series : metrics.read(Metric::kSkippedSteps)) skipped += series.value;
  return {
      {"Step", text_of("%.0f", step), "of " + text_of("%.0f", planned)},
      {"Time left", duration(seconds_left(metrics, history)), ""},
      {"Loss", text_of("%.4f", value(Metric::kLoss)), ""},
      {"Validation loss", validation_text(history), ""},
      {"Tokens/s", short_number(value(Metric::kTokensPerSecond)), ""},
      {"MFU", percent(value(Metric::kMfu)),
       std::isnan(value(Metric::kMfu)) ? "no peak stated" : ""},
      {"Model FLOP/s", short_number(value(Metric::kFlopPerSecond)), ""},
      {"Tokens", short_number(value(Metric::kTokens)), ""},
      {"Learning rate", text_of("%.3g", value(Metric::kLearningRate)), ""},
      {"Gradient norm", text_of("%.3g", value(Metric::kGradientNorm)), ""},
      {"Steps not applied", text_of("%.0f", skipped), ""},
      {"Checkpoint", duration(unix_time() - value(Metric::kCheckpointTime)),
       std::isnan(value(Metric::kCheckpointTime)) ? "none yet" : "ago"},
  };
}

// min, median, max of a metric over ranks, in a row of a table.
std::vector<std::string> spread_row(const Metrics& metrics, const std::string& name, Metric metric,
                                    const std::string& unit) {
  std::vector<std::string> row{name};
  for (const Metrics::Series& series : metrics.read(metric))
    row.push_back(short_number(series.value, unit));
  return row;
}

std::vector<std::vector<std::string>> gpu_rows(const Metrics& metrics) {
  std::vector<std::vector<std::string>> rows{{"Over ranks", "min", "median", "max"}};
  const std::array kRows{std::tuple{Metric::kGpuUtilisation, "GPU busy, 0 to 1", ""},
                         std::tuple{Metric::kGpuMemoryUsed, "GPU memory used", "B"},
                         std::tuple{Metric::kGpuMemory, "GPU memory", "B"},
                         std::tuple{Metric::kGpuPower, "Power", "W"},
                         std::tuple{Metric::kGpuTemperature, "Temperature, \u00b0C", ""},
                         std::tuple{Metric::kGpuClock, "Clock", "Hz"},
                         std::tuple{Metric::kGpuPcieSent, "PCIe sent", "B/s"},
                         std::tuple{Metric::kGpuPcieReceived, "PCIe received", "B/s"}};
  for (const auto& [metric, name, unit] : kRows)
    rows.push_back(spread_row(metrics, name, metric, unit));
  return rows;
}

// What collectives of rank 0 carried, and for how long they were under way in a second of the run.
std::vector<std::vector<std::string>> collective_rows(const Metrics& metrics) {
  std::vector<std::vector<std::string>> rows{{"Collective", "bytes", "seconds", "of the run"}};
  const double run = metrics.value(Metric::kStepSeconds);
  const auto bytes = metrics.read(Metric::kCommunicationBytes);
  const auto seconds = metrics.read(Metric::kCommunicationSeconds);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (seconds[i].value <= 0) continue;
    rows.push_back({std::string(bytes[i].label), short_number(bytes[i].value, "B"),
                    text_of("%.1f", seconds[i].value), percent(seconds[i].value / run)});
  }
  return rows;
}

// A metric by layer and part; empty if the run's model has none.
std::vector<std::vector<double>> grid_of(const Metrics& metrics, Metric metric) {
  std::vector<std::vector<double>> rows;
  bool known = false;
  for (const Metrics::Series& series : metrics.read(metric)) {
    rows.resize(static_cast<size_t>(series.layer) + 1);
    rows.back().push_back(series.value);
    known = known || std::isfinite(series.value);
  }
  return known ? rows : std::vector<std::vector<double>>{};
}

void add_loads(HtmlPage& page, const Metrics& metrics) {
  std::vector<std::string> maps;
  const std::array kLoads{std::tuple{Metric::kStreamLoad, "stream", "load-streams"},
                          std::tuple{Metric::kExpertLoad, "expert", "load-experts"}};
  for (const auto& [metric, part, id] : kLoads) {
    const auto rows = grid_of(metrics, metric);
    if (!rows.empty())
      maps.push_back(share_map({id, join("Load by layer and ", part), ""}, part, rows));
  }
  if (maps.empty()) return;
  page.heading("Mixture: how evenly tokens are spread");
  page.charts(maps);
}

}  // namespace

std::string run_page(const Metrics& metrics, const RunHistory& history) {
  HtmlPage page(metrics.info(), "/", step_attribute(metrics));
  const double part = metrics.value(Metric::kStep) / metrics.value(Metric::kStepsPlanned);
  page.progress(std::isfinite(part) ? part : 0);
  page.tiles(run_tiles(metrics, history));
  std::vector<std::string> charts{
      line_chart({"loss", "Loss, nats/token", ""}, losses(history)),
      line_chart({"tokens", "Speed", "tokens/s", true},
                 {named("", history.course(Metric::kTokensPerSecond))}),
      stacked_chart({"parts", "Where a step's time goes", "s", true}, step_parts(history))};
  const Course mfu = history.course(Metric::kMfu);
  if (!mfu.points.empty()) {
    charts.push_back(line_chart({"mfu", "MFU, 0 to 1", "", true}, {named("", mfu)}));
  }
  page.charts(charts);
  return page.text();
}

std::string utilisation_page(const Metrics& metrics, const RunHistory& history) {
  HtmlPage page(metrics.info(), "/utilisation", step_attribute(metrics));
  page.tiles({{"Step", text_of("%.0f", metrics.value(Metric::kStep)), ""},
              {"Slowest rank's compute", text_of("%.2f", metrics.value(Metric::kSlowestRatio)),
               "times the median's"},
              {"Ranks", text_of("%.0f", metrics.value(Metric::kRanks)), ""}});
  std::vector<std::string> charts{
      stacked_chart({"parts", "Where a step's time goes", "s", true}, step_parts(history)),
      line_chart({"memory", "Resident memory of a rank", "B", true},
                 {named("max", history.course(Metric::kResidentMemory, "max")),
                  named("median", history.course(Metric::kResidentMemory, "median"))})};
  const Course busy = history.course(Metric::kGpuUtilisation, "median");
  if (!busy.points.empty()) {
    charts.push_back(line_chart({"busy", "GPU busy, median, 0 to 1", "", true}, {named("", busy)}));
    charts.push_back(line_chart({"gpu-memory", "GPU memory used, max", "B", true},
                                {named("", history.course(Metric::kGpuMemoryUsed, "max"))}));
  }
  page.charts(charts);
  page.heading("Last step");
  page.table({{"Over ranks", "min", "median", "max"},
              spread_row(metrics, "Computing", Metric::kComputeSeconds, "s"),
              spread_row(metrics, "Waiting for ranks", Metric::kCommunicationWaitSeconds, "s"),
              spread_row(metrics, "Waiting for data", Metric::kDataWaitSeconds, "s"),
              spread_row(metrics, "Memory", Metric::kResidentMemory, "B")});
  if (metrics.has(Metric::kGpuUtilisation)) {
    page.heading("GPUs");
    page.table(gpu_rows(metrics));
  }
  page.heading("Communication of rank 0 since it began");
  page.table(collective_rows(metrics));
  add_loads(page, metrics);
  return page.text();
}

}  // namespace anabranch
