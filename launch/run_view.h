// A run on a terminal's whole screen: what the dashboards Run and Utilisation show.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "launch/run_lines.h"
#include "runtime/reports.h"

namespace anabranch {

// Hears the lines of a run's metrics.jsonl and makes a page of them.
class RunView final : public ReportSink {
 public:
  void step(const StepReport& report) override;
  void eval(const EvalReport& report) override;
  void save(const SaveReport& report) override;
  void event(const std::string& kind, const std::string& text) override;

  // The page: progress, losses as a curve, speed, where the step's time goes, memory, GPUs, and
  // what has happened last.
  //
  //   title  its first line
  //   width  of the terminal, for curves and bars
  [[nodiscard]] std::string text(const std::string& title, size_t width) const;

 private:
  void say(const std::string& line);
  [[nodiscard]] std::string utilisation(size_t width) const;

  std::vector<double> losses_;  // of logged steps
  StepReport last_;
  StepSeconds seconds_;
  std::map<std::string, std::string> evals_;  // the last line of each source, and of looking ahead
  std::deque<std::string> said_;
};

// A curve of block characters, one a column, lowest to highest: means of equal parts of the values,
// at most `width` of them. A value that is not finite shows as "!".
std::string sparkline(const std::vector<double>& values, size_t width);

// "[=====     ]": the part, 0 to 1, of a bar `width` wide; a dash if it is not a number.
std::string part_bar(double part, size_t width);

}  // namespace anabranch
