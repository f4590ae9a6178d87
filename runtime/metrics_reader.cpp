#include "runtime/metrics_reader.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "monitoring/metrics.h"

namespace anabranch {

namespace {

using Json = nlohmann::json;

// Reads fields of one line and remembers whether all it was asked for were there.
class Fields {
 public:
  explicit Fields(const Json& line) : line_(line) {}

  // `otherwise`: what a missing one is; empty: it must be there.
  double number(std::string_view key, std::optional<double> otherwise = {}) {
    const auto found = line_.find(std::string(key));
    if (found == line_.end() && otherwise) return *otherwise;
    if (found != line_.end() && found->is_number()) return found->get<double>();
    if (found != line_.end() && found->is_null()) return std::numeric_limits<double>::quiet_NaN();
    good_ = false;
    return 0;
  }

  double number(Metric metric, std::optional<double> otherwise = {}) {
    return number(spec_of(metric).name, otherwise);
  }

  // Of one of a metric's statistics; not-a-number if it is not there.
  double statistic(Metric metric, std::string_view name) {
    return number(std::string(spec_of(metric).name) + "_" + std::string(name),
                  std::numeric_limits<double>::quiet_NaN());
  }

  int64_t count(std::string_view key) {
    const double value = number(key);
    constexpr double kLargest = 0x1p53;
    if (value >= 0 && value <= kLargest) return static_cast<int64_t>(value);
    good_ = false;
    return 0;
  }

  int64_t count(Metric metric) { return count(spec_of(metric).name); }

  std::string text(const char* key, std::optional<std::string> otherwise = {}) {
    const auto found = line_.find(key);
    if (found == line_.end() && otherwise) return *otherwise;
    if (found != line_.end() && found->is_string()) return found->get<std::string>();
    good_ = false;
    return "";
  }

  // A missing one is false.
  bool flag(const char* key) {
    const auto found = line_.find(key);
    if (found == line_.end()) return false;
    if (found->is_boolean()) return found->get<bool>();
    good_ = false;
    return false;
  }

  [[nodiscard]] bool has(const char* key) const { return line_.contains(key); }

  [[nodiscard]] bool good() const { return good_; }

 private:
  const Json& line_;
  bool good_ = true;
};

// The statistics that a line has of the GPUs; empty: it has none.
std::vector<Spread> gpu_of(Fields& line) {
  const auto place = [](Metric metric) {
    return static_cast<size_t>(metric) - static_cast<size_t>(kGpuMetrics[0].id);
  };
  std::vector<Spread> gpu(kGpuFigures);
  bool any = false;
  for (const Metric metric : {Metric::kGpuUtilisation, Metric::kGpuPower}) {
    gpu[place(metric)].median = line.statistic(metric, "median");
    any = any || !std::isnan(gpu[place(metric)].median);
  }
  for (const Metric metric : {Metric::kGpuMemoryUsed, Metric::kGpuTemperature}) {
    gpu[place(metric)].max = line.statistic(metric, "max");
    any = any || !std::isnan(gpu[place(metric)].max);
  }
  return any ? gpu : std::vector<Spread>();
}

double number_of(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// A number, an array by layer, or one by layer of arrays by part.
std::vector<std::vector<double>> rows_of(const Json& value) {
  if (!value.is_array()) return {{number_of(value)}};
  std::vector<std::vector<double>> rows;
  for (const Json& layer : value) {
    std::vector<double>& row = rows.emplace_back();
    if (!layer.is_array()) {
      row.push_back(number_of(layer));
      continue;
    }
    for (const Json& part : layer) row.push_back(number_of(part));
  }
  return rows;
}

MixtureReport mixture_of(const Json& line) {
  MixtureReport report;
  for (const auto& [name, value] : line.items()) {
    if (name == spec_of(Metric::kStep).name) {
      report.step = value.get<int64_t>();
    } else if (name != "type") {
      report.figures[name] = rows_of(value);
    }
  }
  return report;
}

StepReport step_of(Fields& line, int64_t total_steps) {
  StepReport r;
  r.step = line.count(Metric::kStep);
  r.total_steps = total_steps;
  r.logged = true;
  if (line.has(spec_of(Metric::kTokens).name)) r.tokens = line.count(Metric::kTokens);
  r.loss = line.number(Metric::kLoss);
  r.learning_rate = line.number(Metric::kLearningRate);
  r.grad_norm = line.number(Metric::kGradientNorm);
  r.seconds = line.number(Metric::kStepSeconds);
  r.tokens_per_second = line.number(Metric::kTokensPerSecond);
  r.flops_per_second = line.number(Metric::kFlopPerSecond, 0);
  r.mfu = line.number(Metric::kMfu, -1);
  r.skipped = line.text("skipped", "");
  r.compute_seconds.median = line.statistic(Metric::kComputeSeconds, "median");
  r.comm_seconds.median = line.statistic(Metric::kCommunicationWaitSeconds, "median");
  r.data_seconds.median = line.statistic(Metric::kDataWaitSeconds, "median");
  r.resident_bytes.max = line.statistic(Metric::kResidentMemory, "max");
  r.slowest_ratio = line.number(Metric::kSlowestRatio, 1);
  r.gpu = gpu_of(line);
  return r;
}

EvalReport eval_of(Fields& line) {
  EvalReport r;
  r.step = line.count(Metric::kStep);
  r.source = line.text("source");
  if (r.source == "all") r.source.clear();  // the only one
  r.looks_ahead = line.flag("looks_ahead");
  if (r.looks_ahead) {
    r.loss = line.number(Metric::kValidationLossLookingAhead);
    r.perplexity = r.bits_per_byte = std::numeric_limits<double>::quiet_NaN();
  } else {
    r.loss = line.number(Metric::kValidationLoss);
    r.perplexity = line.number(Metric::kValidationPerplexity);
    r.bits_per_byte = line.number(Metric::kBitsPerByte);
  }
  r.tokens = line.count("tokens");
  r.seconds = line.number("seconds");
  return r;
}

SaveReport save_of(Fields& line) {
  SaveReport r;
  r.step = line.count(Metric::kStep);
  r.ok = !line.has("error");
  if (!r.ok) {
    r.error = line.text("error");
    return r;
  }
  r.stall_seconds = line.number(Metric::kCheckpointPauseSeconds);
  r.write_seconds = line.number(Metric::kCheckpointSeconds);
  r.bytes = line.count(Metric::kCheckpointBytes);
  return r;
}

}  // namespace

bool read_report(const std::string& line, int64_t total_steps, ReportSink& sink,
                 const std::function<void(MixtureReport)>& mixture) {
  const Json parsed = Json::parse(line, nullptr, false);
  if (!parsed.is_object()) return false;
  Fields fields(parsed);
  const std::string type = fields.text("type");
  if (type == "step") {
    const StepReport report = step_of(fields, total_steps);
    if (fields.good()) sink.step(report);
  } else if (type == "eval") {
    const EvalReport report = eval_of(fields);
    if (fields.good()) sink.eval(report);
  } else if (type == "save") {
    const SaveReport report = save_of(fields);
    if (fields.good()) sink.save(report);
  } else if (type == "event") {
    const std::string kind = fields.text("kind"), text = fields.text("text");
    if (fields.good()) sink.event(kind, text);
  } else if (type == "mixture") {
    fields.count(Metric::kStep);
    if (fields.good() && mixture) mixture(mixture_of(parsed));
  } else {
    return false;
  }
  return fields.good();
}

}  // namespace anabranch
