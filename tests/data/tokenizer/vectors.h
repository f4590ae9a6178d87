// The recorded files of tests/reference/tokenizer/ (made by make_tokenizer_vectors.py) and random
// text.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "tests/data/folder.h"

namespace anabranch::test {

inline std::string reference_path(const std::string& name) {
  return std::string(AB_SOURCE_DIR) + "/tests/reference/tokenizer/" + name;
}

// The folder of real files in public formats, empty if the user names none.
inline std::string test_data() {
  const char* folder = std::getenv("AB_TEST_DATA");
  return folder == nullptr ? "" : folder;
}

// A text and the ids that other programs give it.
struct Vector {
  std::string text;
  std::vector<TokenId> ids;
};

inline std::vector<Vector> read_vectors(const std::string& name) {
  std::istringstream file(slurp(reference_path(name)));
  std::vector<Vector> vectors;
  for (std::string line; std::getline(file, line);) {
    const std::size_t tab = line.find('\t');
    Vector vector;
    for (std::size_t i = 0; i + 1 < tab; i += 2) {
      vector.text += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
    std::istringstream ids(line.substr(tab + 1));
    for (TokenId id = 0; ids >> id;) vector.ids.push_back(id);
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

inline void append_utf8(std::string& text, std::uint32_t code) {
  const auto tail = [&](unsigned shift) {
    text += static_cast<char>(0x80U | ((code >> shift) & 0x3FU));
  };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0U | (code >> 6U));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0U | (code >> 12U));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0U | (code >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Text in which the rules of the split patterns meet often: runs of few kinds of characters,
// contractions, any code point, and bytes that are not UTF-8.
inline std::string random_text(std::mt19937& rng, std::size_t parts) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  static constexpr std::string_view kPieces[] = {" ",
                                                 "  ",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 "'",
                                                 "'s",
                                                 "'S",
                                                 "'Ll",
                                                 "'re",
                                                 "'vE",
                                                 "a",
                                                 "Zq",
                                                 "7",
                                                 "42",
                                                 ".",
                                                 "--",
                                                 "(",
                                                 "\xC3\xA9",
                                                 "\xC5\xBF",
                                                 "'\xC5\xBF",
                                                 "\xD9\xA3",
                                                 "\xC2\xA0",
                                                 "\xC2\x85",
                                                 "\xE2\x80\xA8",
                                                 "\xE2\x85\xAB",
                                                 "\xF0\x9F\x98\x80",
                                                 "\xE1\xA0\x8E",
                                                 "\xE3\x80\x80",
                                                 "\x80",
                                                 "\xFF",
                                                 "\xC3",
                                                 "\xE2\x80",
                                                 "\xED\xA0\x80",
                                                 "\xF4\x90\x80\x80",
                                                 "\xC0\x80",
                                                 "\x01",
                                                 "\x1C"};
  std::string text;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t kind = below(8);
    if (kind == 0) {
      append_utf8(text, static_cast<std::uint32_t>(below(0x110000)));
    } else if (kind == 1) {
      append_utf8(text, static_cast<std::uint32_t>(below(0x3000)));
    } else if (kind == 2) {
      text += static_cast<char>(below(256));
    } else {
      text += kPieces[below(std::size(kPieces))];
    }
  }
  return text;
}

}  // namespace anabranch::test
