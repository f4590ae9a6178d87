// Progress of long work on the error stream: a bar on a terminal, else a plain line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace anabranch {

// "1.5 GiB", "3.2 M", "1:02:03".
std::string bytes_text(double bytes);
std::string count_text(double count);
std::string time_text(double seconds);
// "1 document", "3.2 M documents"; for nouns that take an s.
std::string count_text(double count, const std::string& noun);

class Progress {
 public:
  enum class Unit : uint8_t { kCount, kBytes };

  // Shows nothing yet.
  //
  //   title  what is being done: "tokenizer train"
  //   total  of what `update` counts; 0: unknown, no bar and no time left
  Progress(std::string title, double total, Unit unit);
  // Ends the bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Redraws at most ten times a second on a terminal, and prints a line every ten seconds (the
  // first after two) elsewhere. From one thread at a time.
  //
  //   done  so far
  //   note  shown behind: "12 of 400 merges"
  void update(double done, const std::string& note = "");
  // Another stage with a total of its own.
  void restart(std::string title, double total, Unit unit);
  // The last state in any case, and the end of the line.
  void finish();

  // What update() shows; for tests.
  [[nodiscard]] std::string line(double done, const std::string& note, double seconds) const;

 private:
  using Clock = std::chrono::steady_clock;

  void show(const std::string& text);

  std::string title_;
  double total_;
  Unit unit_;
  bool terminal_;
  Clock::time_point begin_, next_;
  double done_ = 0;
  std::string note_;
  size_t shown_ = 0;  // characters of the bar's line
};

}  // namespace anabranch
