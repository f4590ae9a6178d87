// What a planner knows of a machine: its devices, hosts and links, each figure with its source.
//
// A file of it is YAML, read as strictly as a configuration: configs/machines/README.md.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/dtype.h"

namespace anabranch {

enum class DeviceKind : uint8_t { kCpu, kGpu };

constexpr auto words_of(DeviceKind) { return std::array<std::string_view, 2>{"cpu", "gpu"}; }

// The ranks of one host, or of several.
enum class LinkLevel : uint8_t { kHost, kNetwork };

constexpr auto words_of(LinkLevel) { return std::array<std::string_view, 2>{"host", "network"}; }

// A number and where it comes from.
struct Figure {
  double value = 0;
  std::string source;

  void visit(auto&& f) {
    f("value", value, 0.0, 1e21, "in units of one: bytes, seconds, operations a second");
    f("source", source, "who says so; \"assumed\" where nobody does");
  }

  bool operator==(const Figure&) const = default;
};

// Operations a second of matrix products, by type.
struct PeakFigures {
  Figure fp64, fp32, tf32, bf16;

  void visit(auto&& f) {
    f("fp64", fp64);
    f("fp32", fp32);
    f("tf32", tf32);
    f("bf16", bf16);
  }

  bool operator==(const PeakFigures&) const = default;
};

// A GPU; or a core of a CPU, of which a rank has its share.
struct DeviceFigures {
  DeviceKind kind = DeviceKind::kGpu;
  PeakFigures peak;
  Figure product_share, attention_share;  // of the peak, by large products and by attention
  Figure call_seconds;                    // of starting an op
  Figure softmax;                         // logits a second, with their gradients
  Figure memory, bandwidth, bandwidth_share;
  Figure overlap;  // of communication that computing can hide, 0 to 1

  void visit(auto&& f) {
    f("kind", kind, "gpu: a rank has one; cpu: a rank has its share of the host's cores");
    f("peak", peak);
    f("product_share", product_share);
    f("attention_share", attention_share);
    f("call_seconds", call_seconds);
    f("softmax", softmax);
    f("memory", memory);
    f("bandwidth", bandwidth);
    f("bandwidth_share", bandwidth_share);
    f("overlap", overlap);
  }

  bool operator==(const DeviceFigures&) const = default;
};

struct HostFigures {
  Figure devices, cores;

  void visit(auto&& f) {
    f("devices", devices);
    f("cores", cores);
  }

  bool operator==(const HostFigures&) const = default;
};

struct CurvePoint {
  double bytes = 0, bandwidth = 0;
  std::string source;

  void visit(auto&& f) {
    f("bytes", bytes, 1.0, 1e15, "the larger buffer of a rank in one collective");
    f("bandwidth", bandwidth, 1.0, 1e18, "bus bandwidth as nccl-tests has it, bytes a second");
    f("source", source, "who says so");
  }

  bool operator==(const CurvePoint&) const = default;
};

struct LinkFigures {
  LinkLevel level = LinkLevel::kHost;
  Figure latency;
  std::vector<CurvePoint> curve;

  void visit(auto&& f) {
    f("level", level, "among ranks of one host, or between hosts that all use all their devices");
    f("latency", latency);
    f("curve", curve, "bandwidth by size, rising sizes");
  }

  // Bus bandwidth of a collective whose larger buffer has `bytes`: between two points as a straight
  // line of both logarithms; below the first, a call takes as long as the first does.
  [[nodiscard]] double bandwidth(double bytes) const;

  bool operator==(const LinkFigures&) const = default;
};

struct Machine {
  int64_t schema = 1;
  std::string name, about;
  DeviceFigures device;
  HostFigures host;
  std::vector<LinkFigures> links;

  void visit(auto&& f) {
    f("schema", schema, int64_t{1}, int64_t{1}, "version of these keys");
    f("name", name, "of the machine");
    f("about", about, "a sentence about it");
    f("device", device);
    f("host", host);
    f("links", links, "one by level");
  }

  // Null: there is none.
  [[nodiscard]] const LinkFigures* link(LinkLevel level) const;

  // Devices that a rank has for itself: one, or its share of a CPU's cores.
  [[nodiscard]] double devices_of_rank(int ranks_per_host) const;

  // Operations a second that a rank's large matrix products reach in a type; the accumulator's
  // where `wide`. Throws Error (config) if the file has no peak of that type.
  [[nodiscard]] double product_rate(DType type, int ranks_per_host) const;
  [[nodiscard]] double attention_rate(DType type, int ranks_per_host) const;
  // Seconds of a rank's softmax of so many logits and of its gradient: as long as memory or its
  // arithmetic takes, whichever is longer.
  [[nodiscard]] double softmax_seconds(double logits, double bytes, int ranks_per_host) const;
  // Bytes a second and bytes of a rank.
  [[nodiscard]] double memory_rate(int ranks_per_host) const;
  [[nodiscard]] double memory(int ranks_per_host) const;

  bool operator==(const Machine&) const = default;
};

// Reads a machine. Throws Error (config) that lists every problem with its line: unknown keys,
// figures without a source, a curve that does not rise.
//
//   name  how messages call it
Machine parse_machine(const std::string& text, const std::string& name);
Machine load_machine(const std::string& path);

// As YAML; parse_machine() gives back an equal one.
std::string dump_machine(const Machine& machine);

}  // namespace anabranch
