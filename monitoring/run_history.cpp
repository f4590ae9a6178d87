#include "monitoring/run_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace anabranch {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

RunHistory::Course course_of(const History& history, size_t figure) {
  RunHistory::Course course{};
  for (const History::Point& point : history.points()) {
    const double value = point.figures[figure];
    if (std::isfinite(value)) course.points.emplace_back(point.x, value);
  }
  return course;
}

size_t place_of(Metric metric, std::string_view label) {
  for (size_t i = 0; i < kCourses.size(); ++i) {
    if (kCourses[i].first == metric && kCourses[i].second == label) return i;
  }
  AB_FAIL("the course of ", spec_of(metric).name, " ", label, " is not kept");
}

}  // namespace

RunHistory::RunHistory(std::vector<std::string> sources)
    : sources_(std::move(sources)),
      steps_(std::ssize(kCourses) + 1),
      validations_(std::ssize(kValidations) * std::ssize(sources_)) {}

void RunHistory::step(const Metrics& metrics, double step, double seconds) {
  std::array<double, kCourses.size() + 1> values{};
  for (size_t i = 0; i < kCourses.size(); ++i) {
    const auto& [metric, label] = kCourses[i];
    values[i] = metrics.has(metric) ? metrics.value(metric, label) : kUnknown;
  }
  values.back() = seconds;
  steps_.add(step, values);
}

void RunHistory::validation(double step, Metric metric, std::string_view source, double loss) {
  std::vector<double> values(kValidations.size() * sources_.size(), kUnknown);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool same = kValidations[i / sources_.size()] == metric;
    if (same && sources_[i % sources_.size()] == source) values[i] = loss;
  }
  validations_.add(step, values);
}

RunHistory::Course RunHistory::course(Metric metric, std::string_view label) const {
  return course_of(steps_, place_of(metric, label));
}

std::vector<RunHistory::Course> RunHistory::together(
    std::span<const std::pair<Metric, std::string_view>> courses) const {
  std::vector<size_t> places;
  for (const auto& [metric, label] : courses) places.push_back(place_of(metric, label));
  places.push_back(kCourses.size());
  std::vector<Course> all(places.size());
  for (const History::Point& point : steps_.points()) {
    const auto known = [&point](size_t place) { return std::isfinite(point.figures[place]); };
    if (!std::ranges::all_of(places, known)) continue;
    for (size_t i = 0; i < places.size(); ++i) {
      all[i].points.emplace_back(point.x, point.figures[places[i]]);
    }
  }
  return all;
}

RunHistory::Course RunHistory::seconds() const { return course_of(steps_, kCourses.size()); }

std::vector<RunHistory::Course> RunHistory::validations() const {
  std::vector<Course> begun;
  for (size_t i = 0; i < kValidations.size() * sources_.size(); ++i) {
    Course course = course_of(validations_, i);
    if (course.points.empty()) continue;
    course.name = sources_[i % sources_.size()];
    course.metric = kValidations[i / sources_.size()];
    begun.push_back(std::move(course));
  }
  return begun;
}

}  // namespace anabranch
