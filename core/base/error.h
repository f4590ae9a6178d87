// One exception type and the checks that throw it. Libraries throw; only launch/ may end the
// process.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace anabranch {

// What kind of thing went wrong. The value is the exit code of a program that ends with it.
enum class Fault : int {
  kUsage = 64,        // a bad command line
  kData = 65,         // bad input data: a file is missing, broken, or does not fit the others
  kPeer = 69,         // another rank was lost, or hangs
  kInternal = 70,     // a failed check, or a loss that stays non-finite
  kIo = 74,           // the disk failed, or another job holds the lock
  kSaved = 75,        // saved on request; run me again
  kConfig = 78,       // a bad configuration
  kInterrupted = 130  // interrupted, and saved
};

// A failure: what was found, what was expected, and what to do.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& what) : std::runtime_error(what), fault_(fault) {}

  [[nodiscard]] Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

// Concatenates streamable parts into a message.
template <class... Parts>
std::string join(Parts&&... parts) {
  std::ostringstream out;
  (out << ... << std::forward<Parts>(parts));
  return std::move(out).str();
}

// Errors of the outside world: the message names the file, key or argument, and the user reads it.
template <class... Parts>
Error usage_error(Parts&&... parts) {
  return {Fault::kUsage, join(std::forward<Parts>(parts)...)};
}

template <class... Parts>
Error data_error(Parts&&... parts) {
  return {Fault::kData, join(std::forward<Parts>(parts)...)};
}

template <class... Parts>
Error io_error(Parts&&... parts) {
  return {Fault::kIo, join(std::forward<Parts>(parts)...)};
}

template <class... Parts>
Error config_error(Parts&&... parts) {
  return {Fault::kConfig, join(std::forward<Parts>(parts)...)};
}

// A fault of the program itself: carries the place in the source.
Error internal_error(const char* file, int line, const std::string& what);

}  // namespace anabranch

#define AB_FAIL(...) \
  throw ::anabranch::internal_error(__FILE__, __LINE__, ::anabranch::join(__VA_ARGS__))

// Checks what a caller passed; on in every build. The message says what was found and expected.
#define AB_CHECK(cond, ...)                        \
  do {                                             \
    if (!(cond)) AB_FAIL(#cond ": ", __VA_ARGS__); \
  } while (false)
