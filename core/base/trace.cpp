#include "core/base/trace.h"

#include <sstream>

namespace anabranch {
namespace {

int64_t nanoseconds(Trace::Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

constexpr std::array kLaneNames = {"compute", "communication", "data", "save"};

}  // namespace

void Trace::add_span(Lane lane, const std::string& name, Clock::time_point begin,
                     Clock::time_point end) {
  const std::scoped_lock hold(lock_);
  events_.push_back(
      {name, lane, nanoseconds(begin.time_since_epoch()), nanoseconds(end - begin), 0});
}

void Trace::add_counter(const std::string& name, double value) {
  if (!on()) return;
  const std::scoped_lock hold(lock_);
  events_.push_back(
      {name, Lane::kCompute, nanoseconds(Clock::now().time_since_epoch()), -1, value});
}

std::string Trace::json(int process) const {
  const std::scoped_lock hold(lock_);
  std::ostringstream out;
  out.precision(3);
  out << std::fixed << "{\"traceEvents\":[";
  for (size_t lane = 0; lane < kLaneNames.size(); ++lane) {
    out << R"({"ph":"M","name":"thread_name","pid":)" << process << ",\"tid\":" << lane
        << R"(,"args":{"name":")" << kLaneNames[lane] << "\"}},\n";
  }
  for (const Event& e : events_) {
    const double begin_us = static_cast<double>(e.begin_ns) / 1e3;
    out << R"({"name":")" << e.name << R"(","pid":)" << process << ",\"ts\":" << begin_us;
    if (e.length_ns < 0) {
      out << R"(,"ph":"C","args":{"bytes":)" << e.value << "}},\n";
    } else {
      out << R"(,"ph":"X","tid":)" << static_cast<int>(e.lane)
          << ",\"dur\":" << static_cast<double>(e.length_ns) / 1e3 << "},\n";
    }
  }
  out << R"({"ph":"M","name":"process_name","pid":)" << process << R"(,"args":{"name":"rank )"
      << process << "\"}}]}\n";
  return std::move(out).str();
}

}  // namespace anabranch
