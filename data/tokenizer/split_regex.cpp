#define PCRE2_CODE_UNIT_WIDTH 8
#include <cstdio>

#include <pcre2.h>

#include "core/base/error.h"
#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode_ranges.h"

namespace anabranch {
namespace {

// The members of a bracketed class, so that "[" + ranges + "]" is the class and "[^" its opposite.
std::string class_members(std::span<const CodeRange> ranges) {
  std::string members;
  for (const CodeRange& range : ranges) {
    std::array<char, 40> item{};
    std::snprintf(item.data(), item.size(), "\\x{%X}-\\x{%X}", range.first, range.last);
    members += item.data();
  }
  return members;
}

// Puts explicit ranges in the place of \p{L}, \p{N}, \s and \S, inside brackets or not.
std::string explicit_ranges(std::string_view regex) {
  std::string out;
  bool bracketed = false;
  const auto put = [&](std::string_view open, std::span<const CodeRange> ranges) {
    const std::string members = class_members(ranges);
    out += bracketed ? members : std::string(open) + members + "]";
  };
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const std::string_view rest = regex.substr(i);
    if (rest.starts_with("\\p{L}") || rest.starts_with("\\p{N}")) {
      put("[", rest[3] == 'L' ? letter_ranges() : number_ranges());
      i += 4;
    } else if (rest.starts_with("\\s") || rest.starts_with("\\S")) {
      put(rest[1] == 's' ? "[" : "[^", space_ranges());
      i += 1;
    } else {
      if (regex[i] == '[') bracketed = true;
      if (regex[i] == ']') bracketed = false;
      out += regex[i];
    }
  }
  return out;
}

// A copy in which each byte that is not valid UTF-8 is replaced by one of the same class and size.
std::string without_invalid_bytes(std::string_view text) {
  std::string out(text);
  for (std::size_t i = 0; i < out.size();) {
    const std::size_t size = decode_utf8(out, i).second;
    if (size == 0) out[i] = '\x01';
    i += size == 0 ? 1 : size;
  }
  return out;
}

const unsigned char* units(const char* text) {
  return static_cast<const unsigned char*>(static_cast<const void*>(text));
}

}  // namespace

struct RegexSplitter::Program {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;

  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  ~Program() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
};

RegexSplitter::RegexSplitter(SplitPattern pattern) : program_(std::make_unique<Program>()) {
  const std::string regex = explicit_ranges(split_regex(pattern));
  int error = 0;
  PCRE2_SIZE where = 0;
  program_->code = pcre2_compile(units(regex.data()), regex.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                 &where, nullptr);
  AB_CHECK(program_->code != nullptr, "PCRE2 error ", error, " at ", where, " of ", regex);
  // Without machine code the interpreter matches the same, slower.
  pcre2_jit_compile(program_->code, PCRE2_JIT_COMPLETE);
  program_->match = pcre2_match_data_create_from_pattern(program_->code, nullptr);
  AB_CHECK(program_->match != nullptr, "PCRE2 is out of memory");
}

RegexSplitter::~RegexSplitter() = default;

std::vector<std::string_view> RegexSplitter::split(std::string_view text) {
  const std::string valid = without_invalid_bytes(text);
  std::vector<std::string_view> pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const int found = pcre2_match(program_->code, units(valid.data()), valid.size(), begin,
                                  PCRE2_NO_UTF_CHECK, program_->match, nullptr);
    AB_CHECK(found > 0, "PCRE2 match error ", found, " at byte ", begin);
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(program_->match);
    AB_CHECK(span[0] == begin && span[1] > begin, "the pattern skipped text at byte ", begin);
    pieces.push_back(text.substr(begin, span[1] - begin));
    begin = span[1];
  }
  return pieces;
}

}  // namespace anabranch
