// Spans of time for a Chrome trace (chrome://tracing, Perfetto): ops, collectives, loader.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace anabranch {

// Which row of the trace a span is drawn in.
enum class Lane : int { kCompute = 0, kComm = 1, kData = 2, kSave = 3 };

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  // Spans and counters are recorded only while on; when off a span costs one atomic read.
  void set_on(bool on) { on_.store(on, std::memory_order_relaxed); }

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  void add_span(Lane lane, const std::string& name, Clock::time_point begin, Clock::time_point end);
  // One sample of a named figure, e.g. bytes by tag; drawn as an area.
  void add_counter(const std::string& name, double value);

  // What the training thread computes, for whoever asks where it is: the op that began last, or, in
  // forward, ended last. A literal; remembered whether on or not.
  void set_op(const char* op) { op_.store(op, std::memory_order_relaxed); }

  [[nodiscard]] const char* op() const { return op_.load(std::memory_order_relaxed); }

  // The recorded events as one Chrome trace JSON document; `process` is the rank.
  [[nodiscard]] std::string json(int process) const;

 private:
  struct Event {
    std::string name;
    Lane lane;
    int64_t begin_ns, length_ns;  // length -1: a counter
    double value;
  };

  std::atomic<bool> on_{false};
  std::atomic<const char*> op_{"none"};
  mutable std::mutex lock_;
  std::vector<Event> events_;
};

// Records the time from its construction to its destruction.
class Span {
 public:
  Span(Trace* trace, Lane lane, const char* name)
      : trace_(trace != nullptr && trace->on() ? trace : nullptr), lane_(lane), name_(name) {
    if (trace_ != nullptr) begin_ = Trace::Clock::now();
  }

  ~Span() {
    if (trace_ != nullptr) trace_->add_span(lane_, name_, begin_, Trace::Clock::now());
  }

  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace* trace_;
  Lane lane_;
  const char* name_;
  Trace::Clock::time_point begin_;
};

}  // namespace anabranch
