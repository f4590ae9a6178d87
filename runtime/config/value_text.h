// Values as YAML text, each as reading gives it back.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/config/number.h"
#include "runtime/config/values.h"
#include "runtime/config/yaml.h"

namespace anabranch {

inline std::string value_text(int64_t value) { return std::to_string(value); }

inline std::string value_text(const AutoInt& value) {
  return value.is_auto() ? "auto" : std::to_string(value.value);
}

inline std::string value_text(double value) { return number_text(value); }

inline std::string value_text(bool value) { return value ? "true" : "false"; }

inline std::string value_text(const std::string& value) { return yaml_word(value); }

template <class E>

requires std::is_enum_v<E> std::string value_text(E value) { return std::string(word_of(value)); }

// A section's fields on one line: {path: a, weight: 1}.
template <class S>
std::string flow_text(S section) {
  std::string text;
  section.visit([&text](const char* key, auto& field, auto&&... /*bounds, help*/) {
    text += (text.empty() ? "" : ", ") + std::string(key) + ": " + value_text(field);
  });
  return "{" + text + "}";
}

inline std::string value_text(const std::vector<int64_t>& list) {
  std::string text;
  for (const int64_t value : list) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

template <class S>
std::string value_text(const std::vector<S>& list) {
  std::string text;
  for (const S& item : list) text += (text.empty() ? "" : ", ") + flow_text(item);
  return "[" + text + "]";
}

}  // namespace anabranch
