// A strict reading of the part of XML that our drawings use.
#pragma once

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace anabranch::test {

// Reads elements, attributes in double quotes, text and the five named entities; no comments,
// declarations or CDATA.
class XmlCheck {
 public:
  explicit XmlCheck(std::string_view text) : text_(text) {}

  // What is wrong first, with its place; empty for one well-formed element.
  std::string problem() {
    while (problem_.empty() && at_ < text_.size()) {
      if (text_[at_] == '<') {
        tag();
      } else {
        characters('<');
      }
    }
    if (problem_.empty() && !open_.empty()) fail("<" + open_.back() + "> is never closed");
    if (problem_.empty() && roots_ != 1) fail("there is not one root");
    return problem_;
  }

 private:
  void fail(const std::string& what) {
    if (problem_.empty()) problem_ = what + " at " + std::to_string(at_);
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string name() {
    const size_t begin = at_;
    const auto part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == ':';
    };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    if (at_ == begin || std::isdigit(static_cast<unsigned char>(text_[begin])) != 0) {
      fail("expected a name");
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  // Text up to `end`, which is left there.
  void characters(char end) {
    for (; problem_.empty() && at_ < text_.size() && text_[at_] != end; ++at_) {
      const char c = text_[at_];
      const bool blank = c == '\n' || c == '\t';
      if (open_.empty() && end == '<' && !blank && c != ' ') return fail("text outside the root");
      if (static_cast<unsigned char>(c) < 0x20 && !blank) return fail("a control character");
      if (c == '<' || c == '>') return fail("a bare angle bracket");
      if (c != '&') continue;
      const std::set<std::string_view> known{"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
      const size_t stop = text_.find(';', at_);
      if (stop == std::string_view::npos || !known.contains(text_.substr(at_, stop + 1 - at_))) {
        return fail("a bare ampersand");
      }
    }
  }

  void attributes() {
    std::set<std::string> seen;
    while (problem_.empty() && take(" ")) {
      if (!seen.insert(name()).second) fail("an attribute twice");
      if (!take("=\"")) fail("expected a value in quotes");
      characters('"');
      if (!take("\"")) fail("a value does not end");
    }
  }

  void tag() {
    if (take("</")) {
      const std::string closed = name();
      if (open_.empty() || open_.back() != closed) return fail("</" + closed + "> closes nothing");
      open_.pop_back();
      if (!take(">")) fail("expected >");
      return;
    }
    ++at_;
    roots_ += open_.empty() ? 1 : 0;
    const std::string opened = name();
    attributes();
    if (take("/>")) return;
    if (!take(">")) return fail("expected >");
    open_.push_back(opened);
  }

  std::string_view text_;
  size_t at_ = 0;
  int roots_ = 0;
  std::vector<std::string> open_;
  std::string problem_;
};

inline std::string xml_problem(std::string_view text) { return XmlCheck(text).problem(); }

}  // namespace anabranch::test
