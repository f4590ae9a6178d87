#include "runtime/interchange/tensorboard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "runtime/interchange/step_figures.h"

namespace anabranch {

namespace {

template <class T>
std::string little_endian(T bits) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xFF);
  return bytes;
}

// Source: TensorFlow, tsl/lib/hash/crc32c.h, Mask(): a checksum of checksums would be weak.
std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return little_endian<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8U);
}

// Of protocol buffers: fields and their wire types.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(uint32_t field, uint32_t wire_type) { return varint(field << 3 | wire_type); }

std::string bytes_field(uint32_t field, std::string_view bytes) {
  return key(field, 2) + varint(bytes.size()) + std::string(bytes);
}

std::string double_field(uint32_t field, double value) {
  return key(field, 1) + little_endian(std::bit_cast<uint64_t>(value));
}

std::string float_field(uint32_t field, float value) {
  return key(field, 5) + little_endian(std::bit_cast<uint32_t>(value));
}

class Events {
 public:
  void add(std::string tag, int64_t step, double seconds, double value) {
    if (std::isnan(value)) return;
    all_.push_back({std::move(tag), step, seconds, static_cast<float>(value)});
  }

  // By step; those of one step in the order in which they came.
  std::vector<ScalarEvent> sorted() {
    std::ranges::stable_sort(all_, {}, &ScalarEvent::step);
    return std::move(all_);
  }

 private:
  std::vector<ScalarEvent> all_;
};

// Training time by logged step.
class Times {
 public:
  explicit Times(const RunSeries& series)
      : steps_(series.steps), seconds_(seconds_by_step(series.steps)) {}

  [[nodiscard]] double at(int64_t step) const {
    const auto after = std::ranges::upper_bound(steps_, step, {}, &StepReport::step);
    return after == steps_.begin() ? 0 : seconds_[static_cast<size_t>(after - steps_.begin()) - 1];
  }

 private:
  const std::vector<StepReport>& steps_;
  std::vector<double> seconds_;
};

void add_evals(const RunSeries& series, const Times& times, Events& events) {
  std::set<std::string> sources;
  for (const EvalReport& eval : series.evals) sources.insert(eval.source);
  for (const EvalReport& eval : series.evals) {
    const std::string source = sources.size() > 1 ? "/" + eval.source : "";
    const double seconds = times.at(eval.step);
    const auto add = [&](Metric metric, double value) {
      events.add(std::string(spec_of(metric).name) + source, eval.step, seconds, value);
    };
    if (eval.looks_ahead) {
      add(Metric::kValidationLossLookingAhead, eval.loss);
      continue;
    }
    add(Metric::kValidationLoss, eval.loss);
    add(Metric::kValidationPerplexity, eval.perplexity);
    add(Metric::kBitsPerByte, eval.bits_per_byte);
  }
}

void add_mixture(const MixtureReport& report, const Times& times, Events& events) {
  for (const auto& [name, rows] : report.figures) {
    const bool has_layers = rows.size() > 1;
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      const bool has_parts = rows[layer].size() > 1;
      for (size_t part = 0; part < rows[layer].size(); ++part) {
        std::string tag = name;
        if (has_layers || has_parts) tag += join("/", layer);
        if (has_parts) tag += join("/", part);
        events.add(std::move(tag), report.step, times.at(report.step), rows[layer][part]);
      }
    }
  }
}

}  // namespace

std::vector<ScalarEvent> scalar_events(const RunSeries& series) {
  Events events;
  const Times times(series);
  for (const StepReport& step : series.steps) {
    for (const StepFigure& figure : kStepFigures) {
      events.add(std::string(figure.name()), step.step, times.at(step.step), figure.of(step));
    }
  }
  add_evals(series, times, events);
  for (const MixtureReport& report : series.mixture) add_mixture(report, times, events);
  return events.sorted();
}

std::string tf_record(std::string_view bytes) {
  const std::string length = little_endian<uint64_t>(bytes.size());
  return length + masked_crc(length) + std::string(bytes) + masked_crc(bytes);
}

// Source: TensorFlow, core/util/event.proto and core/framework/summary.proto.
std::string event_message(const ScalarEvent& event) {
  const std::string value = bytes_field(1, event.tag) + float_field(2, event.value);
  return double_field(1, event.seconds) + key(2, 0) + varint(static_cast<uint64_t>(event.step)) +
         bytes_field(5, bytes_field(1, value));
}

std::string event_file(const std::vector<ScalarEvent>& events) {
  std::string file = tf_record(double_field(1, 0) + bytes_field(3, "brain.Event:2"));
  for (const ScalarEvent& event : events) file += tf_record(event_message(event));
  return file;
}

}  // namespace anabranch
