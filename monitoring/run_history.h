// The course of a run's figures since its process began, for the pages of the endpoint.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "monitoring/history.h"
#include "monitoring/metrics.h"

namespace anabranch {

// Gauges whose course is kept, and one of their labels.
inline constexpr std::array kCourses{
    std::pair{Metric::kLoss, ""},
    std::pair{Metric::kTokensPerSecond, ""},
    std::pair{Metric::kMfu, ""},
    std::pair{Metric::kComputeSeconds, "median"},
    std::pair{Metric::kCommunicationWaitSeconds, "median"},
    std::pair{Metric::kDataWaitSeconds, "median"},
    std::pair{Metric::kResidentMemory, "median"},
    std::pair{Metric::kResidentMemory, "max"},
    std::pair{Metric::kGpuUtilisation, "median"},
    std::pair{Metric::kGpuMemoryUsed, "max"},
};

class RunHistory {
 public:
  // sources  values of the metrics' `source` label
  explicit RunHistory(std::vector<std::string> sources = {"all"});

  // A step is done, and its gauges are set.
  void step(const Metrics& metrics, double step, double seconds);
  // A validation of a source; `metric` is one of kValidations.
  void validation(double step, Metric metric, std::string_view source, double loss);

  static constexpr std::array kValidations{Metric::kValidationLoss,
                                           Metric::kValidationLossLookingAhead};

  // A figure of the steps by step, where it is known.
  struct Course {
    std::string name;  // of a source; else empty
    Metric metric;
    std::vector<std::pair<double, double>> points;
  };

  // Of one of kCourses. Throws Error (internal) if it is none.
  [[nodiscard]] Course course(Metric metric, std::string_view label = {}) const;
  // Seconds of a step.
  [[nodiscard]] Course seconds() const;
  // Of steps of which all of them are known: the courses of some of kCourses and then the seconds,
  // all by the same steps. Throws as course().
  [[nodiscard]] std::vector<Course> together(
      std::span<const std::pair<Metric, std::string_view>> courses) const;
  // Those that have begun, of all sources.
  [[nodiscard]] std::vector<Course> validations() const;

 private:
  std::vector<std::string> sources_;
  History steps_;        // kCourses, then the seconds
  History validations_;  // kValidations x sources
};

}  // namespace anabranch
