#include "runtime/planner/machine.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "runtime/config/number.h"
#include "runtime/config/section_reader.h"
#include "runtime/config/value_text.h"

namespace anabranch {
namespace {

// What a field must hold beyond what reading checks.
class Checker {
 public:
  Checker(std::string file, std::vector<std::string>& problems)
      : file_(std::move(file)), problems_(problems) {}

  void figure(const std::string& key, const Figure& f, bool needed, double most = 1e21) {
    if (f.value == 0 && f.source.empty()) {
      if (needed) problem(key, "is not set: give {value, source}");
      return;
    }
    if (f.source.empty()) problem(key + ".source", "is empty: say who says so, or \"assumed\"");
    if (f.value > most)
      problem(key + ".value", "is " + number_text(f.value) + ", above " + number_text(most));
  }

  // A figure that something is divided by.
  void divisor(const std::string& key, const Figure& f, bool needed, double most = 1e21) {
    figure(key, f, needed, most);
    if (!f.source.empty() && f.value <= 0) problem(key + ".value", "is 0: must be above 0");
  }

  void problem(const std::string& key, const std::string& what) {
    problems_.push_back(file_ + ": " + key + " " + what);
  }

 private:
  std::string file_;
  std::vector<std::string>& problems_;
};

void check_link(Checker& check, const std::string& key, const LinkFigures& link) {
  check.figure(key + ".latency", link.latency, true);
  if (link.curve.empty()) check.problem(key + ".curve", "is empty: give at least one point");
  for (size_t i = 0; i < link.curve.size(); ++i) {
    const CurvePoint& p = link.curve[i];
    const std::string at = join(key, ".curve[", i, "]");
    if (p.source.empty()) check.problem(at + ".source", "is empty: say who says so");
    if (p.bytes <= 0 || p.bandwidth <= 0) check.problem(at, "needs bytes and bandwidth above 0");
    if (i > 0 && p.bytes <= link.curve[i - 1].bytes) {
      check.problem(at + ".bytes",
                    "does not rise: it comes after " + number_text(link.curve[i - 1].bytes));
    }
  }
}

void check_machine(const Machine& m, const std::string& file) {
  std::vector<std::string> problems;
  Checker check(file, problems);
  if (m.name.empty()) check.problem("name", "is not set");
  const PeakFigures& peak = m.device.peak;
  check.divisor("device.peak.fp64", peak.fp64, false);
  check.divisor("device.peak.fp32", peak.fp32, true);
  check.divisor("device.peak.tf32", peak.tf32, false);
  check.divisor("device.peak.bf16", peak.bf16, false);
  check.divisor("device.product_share", m.device.product_share, true, 1);
  check.divisor("device.attention_share", m.device.attention_share, true, 1);
  check.figure("device.call_seconds", m.device.call_seconds, false);
  check.figure("device.softmax", m.device.softmax, false);
  check.divisor("device.memory", m.device.memory, true);
  check.divisor("device.bandwidth", m.device.bandwidth, true);
  check.divisor("device.bandwidth_share", m.device.bandwidth_share, true, 1);
  check.figure("device.overlap", m.device.overlap, false, 1);
  check.divisor("host.devices", m.host.devices, true);
  check.figure("host.cores", m.host.cores, false);
  if (m.host.devices.value != std::floor(m.host.devices.value)) {
    check.problem("host.devices.value",
                  "is " + number_text(m.host.devices.value) + ": must be a whole number");
  }
  for (size_t i = 0; i < m.links.size(); ++i) {
    check_link(check, join("links[", i, "]"), m.links[i]);
    for (size_t j = 0; j < i; ++j) {
      if (m.links[j].level == m.links[i].level) {
        check.problem(join("links[", i, "].level"), "is given twice");
      }
    }
  }
  refuse(problems);
}

// Writes the fields of a section, two spaces a level.
class Writer {
 public:
  explicit Writer(int depth = 0) : indent_(2 * static_cast<size_t>(depth), ' '), depth_(depth) {}

  void operator()(const char* key, Figure& f) {
    if (f != Figure{}) line(key, flow_text(f));
  }

  template <class S>
  void operator()(const char* key, S& section) {
    Writer inner(depth_ + 1);
    section.visit(inner);
    text += indent_ + key + ":\n" + inner.text;
  }

  template <class T>
  void operator()(const char* key, T& field, T /*min*/, T /*max*/, const char* /*help*/) {
    line(key, value_text(field));
  }

  template <class T>
  void operator()(const char* key, T& field, const char* /*help*/) {
    line(key, value_text(field));
  }

  template <class S>
  void operator()(const char* key, std::vector<S>& list, const char*) {
    if (list.empty()) return line(key, "[]");
    text += indent_ + key + ":\n";
    for (S& item : list) {
      Writer inner(depth_ + 2);
      item.visit(inner);
      inner.text[indent_.size() + 2] = '-';
      text += inner.text;
    }
  }

  std::string text;

 private:
  void line(const std::string& key, const std::string& value) {
    text += indent_ + key + ": " + value + "\n";
  }

  std::string indent_;
  int depth_;
};

double peak_of(const Machine& m, DType type) {
  const PeakFigures& peak = m.device.peak;
  const Figure& f = type == DType::kBF16 ? peak.bf16 : type == DType::kF64 ? peak.fp64 : peak.fp32;
  if (f.value > 0) return f.value;
  throw config_error("machine ", m.name, " has no device.peak.",
                     type == DType::kBF16 ? "bf16" : "fp64", ", and the run computes in it");
}

}  // namespace

double LinkFigures::bandwidth(double bytes) const {
  AB_CHECK(!curve.empty(), "a link without a curve");
  const CurvePoint& first = curve.front();
  if (bytes <= first.bytes) return first.bandwidth * bytes / first.bytes;
  for (size_t i = 1; i < curve.size(); ++i) {
    if (bytes > curve[i].bytes) continue;
    const CurvePoint &a = curve[i - 1], &b = curve[i];
    const double share = std::log(bytes / a.bytes) / std::log(b.bytes / a.bytes);
    return a.bandwidth * std::pow(b.bandwidth / a.bandwidth, share);
  }
  return curve.back().bandwidth;
}

const LinkFigures* Machine::link(LinkLevel level) const {
  for (const LinkFigures& l : links) {
    if (l.level == level) return &l;
  }
  return nullptr;
}

double Machine::devices_of_rank(int ranks_per_host) const {
  return device.kind == DeviceKind::kGpu ? 1 : host.devices.value / std::max(ranks_per_host, 1);
}

double Machine::product_rate(DType type, int ranks_per_host) const {
  return peak_of(*this, type) * device.product_share.value * devices_of_rank(ranks_per_host);
}

double Machine::attention_rate(DType type, int ranks_per_host) const {
  return peak_of(*this, type) * device.attention_share.value * devices_of_rank(ranks_per_host);
}

double Machine::softmax_seconds(double logits, double bytes, int ranks_per_host) const {
  constexpr double kTouches = 4;
  const double moving = kTouches * bytes / memory_rate(ranks_per_host);
  if (device.softmax.value == 0) return moving;
  return std::max(moving, logits / (device.softmax.value * devices_of_rank(ranks_per_host)));
}

double Machine::memory_rate(int ranks_per_host) const {
  return device.bandwidth.value * device.bandwidth_share.value * devices_of_rank(ranks_per_host);
}

double Machine::memory(int ranks_per_host) const {
  return device.memory.value * devices_of_rank(ranks_per_host);
}

Machine parse_machine(const std::string& text, const std::string& name) {
  Machine machine = read_sections<Machine>(text, name, {});
  check_machine(machine, name);
  return machine;
}

Machine load_machine(const std::string& path) {
  return parse_machine(read_config_file(path), path);
}

std::string dump_machine(const Machine& machine) {
  Writer writer;
  Machine copy = machine;
  copy.visit(writer);
  return writer.text;
}

}  // namespace anabranch
