#include "runtime/evaluation/csv.h"

#include "core/base/error.h"

namespace anabranch {

namespace {

class CsvParser {
 public:
  CsvParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  // The next record; false at the end.
  bool next(std::vector<std::string>& record) {
    record.clear();
    if (at_ == text_.size()) return false;
    do {
      record.push_back(peek() == '"' ? quoted() : plain());
    } while (take(','));
    take('\r');
    if (at_ < text_.size() && !take('\n')) fail("characters behind a field in quotes");
    ++line_;
    return true;
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  [[noreturn]] void fail(const char* what) const {
    throw data_error(name_, ":", line_, ": ", what, "; expected a table as RFC 4180 has it");
  }

  std::string plain() {
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string field(text_.substr(at_, end - at_));
    if (field.find('"') != std::string::npos) fail("a quote inside a field without quotes");
    at_ = end;
    return field;
  }

  std::string quoted() {
    std::string field;
    ++at_;
    while (true) {
      if (at_ == text_.size()) fail("a quote that is never closed");
      const char c = text_[at_++];
      if (c == '"' && !take('"')) return field;
      line_ += c == '\n' ? 1 : 0;
      field += c;
    }
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name) {
  CsvParser parser(text, name);
  std::vector<std::vector<std::string>> records;
  for (std::vector<std::string> record; parser.next(record);) {
    if (record.size() > 1 || !record.front().empty()) records.push_back(record);
  }
  return records;
}

}  // namespace anabranch
