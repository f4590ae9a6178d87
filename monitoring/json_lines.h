// metrics.jsonl: one JSON object a line, written by a thread of its own.
#pragma once

#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "monitoring/metrics.h"

namespace anabranch {

// One line in the making: {"type": "step", "step": 10, ...}.
class JsonLine {
 public:
  explicit JsonLine(std::string_view type);

  // A metric under its name in the table; with a label as "name_label". Not-a-number and infinity,
  // which JSON does not have, become null.
  JsonLine& add(Metric metric, double value, std::string_view label = {});
  // What is no metric: names, paths, reasons.
  JsonLine& add(std::string_view key, std::string_view text);
  JsonLine& add(std::string_view key, double value);
  JsonLine& add(std::string_view key, const std::vector<double>& values);
  JsonLine& add(std::string_view key, const std::vector<std::vector<double>>& rows);

  // Of bool alone: text must not turn into one.
  JsonLine& add(std::string_view key, std::same_as<bool> auto value) {
    return add_word(key, value ? "true" : "false");
  }

  [[nodiscard]] std::string text() const { return text_ + "}"; }

 private:
  JsonLine& add_word(std::string_view key, std::string_view word);

  std::string text_;
};

// Appends lines to a file. Never throws and never waits for the disk: a line that cannot be written
// is counted, and no broken line stays in the file.
class JsonLines {
 public:
  // Cuts off a torn last line that an earlier run may have left.
  //
  //   warn  called once if the file cannot be opened, and once when a line is lost
  JsonLines(const std::string& path, std::function<void(const std::string&)> warn);
  // Writes what is queued, syncs, closes.
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  void write(const JsonLine& line);
  // Waits until all lines so far are written (or lost) and synced.
  void flush();

  [[nodiscard]] int64_t lost() const;

 private:
  void run();
  bool append(const std::string& line);

  std::string path_;
  std::function<void(const std::string&)> warn_;
  int file_ = -1;
  mutable std::mutex lock_;
  std::condition_variable wake_, idle_;
  std::deque<std::string> queue_;
  int64_t lost_ = 0;
  bool busy_ = false, closing_ = false, warned_ = false;
  std::thread thread_;
};

}  // namespace anabranch
