// A rank's log: lines with time and rank to the terminal and to a file of the run directory.
#pragma once

#include <memory>
#include <string>

namespace anabranch {

class Log {
 public:
  // Writes `info` and above to `file` (appended; none if empty), and to the error stream if
  // `to_terminal`; warnings and errors go to the error stream in any case. Throws Error (I/O) if
  // the file cannot be opened.
  Log(int rank, const std::string& file, bool to_terminal);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void info(const std::string& line);
  void warn(const std::string& line);
  void error(const std::string& line);
  void flush();

 private:
  struct Sinks;
  std::unique_ptr<Sinks> sinks_;
};

}  // namespace anabranch
