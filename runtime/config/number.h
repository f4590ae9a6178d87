// Numbers as text, without losing a bit and without the locale.
#pragma once

#include <cstdint>
#include <string>

namespace anabranch {

// The shortest text that reads back as the same number.
std::string number_text(double value);

// "1 rank", "2 ranks"; for nouns that take an s.
std::string counted(int64_t count, const std::string& noun);

// Reads the whole text as a number; "1e9" is a whole number too. Returns false, and leaves `value`,
// if the text is anything else, is not finite, or does not fit.
bool parse_number(const std::string& text, double& value);
bool parse_number(const std::string& text, int64_t& value);

}  // namespace anabranch
