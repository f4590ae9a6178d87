#include "runtime/config/number.h"

#include <array>
#include <charconv>
#include <cmath>

namespace anabranch {

std::string number_text(double value) {
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::general);
  std::string text(buffer.data(), end.ptr);
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  // "1e-05" and "1e+06" as people write them.
  const bool negative = text[exponent + 1] == '-';
  const size_t digits = text.find_first_not_of("+-0", exponent + 1);
  return text.substr(0, exponent) + (negative ? "e-" : "e") + text.substr(digits);
}

std::string counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

bool parse_number(const std::string& text, double& value) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (text.starts_with("+") && !text.starts_with("+-")) ++begin;
  double read = 0;
  const auto result = std::from_chars(begin, end, read);
  if (begin == end || result.ec != std::errc() || result.ptr != end || !std::isfinite(read)) {
    return false;
  }
  value = read;
  return true;
}

bool parse_number(const std::string& text, int64_t& value) {
  int64_t read = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, read);
  if (result.ec == std::errc() && result.ptr == end && !text.empty()) {
    value = read;
    return true;
  }
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it not every integer is a double
  double real = 0;
  if (!parse_number(text, real) || std::trunc(real) != real || std::fabs(real) > kExact) {
    return false;
  }
  value = static_cast<int64_t>(real);
  return true;
}

}  // namespace anabranch
