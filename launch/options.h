// Options of verbs that accept some values only: --help shows which and the default, and anything
// else is a usage error (64) like "--x: found -1; expected a whole number from 0 to 9".
//
// Each function takes the option's flag, what it sets, what is accepted and what --help says; what
// is set keeps the default until the command line is parsed.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library names them
class App;
class Option;
}  // namespace CLI

namespace anabranch {

// The whole numbers from min to max, both included.
struct Whole {
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();
};

// The numbers from min to max, both included, but min itself if only those `above` it are.
struct Real {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool above = false;
};

// A whole number; "1e9" is one too.
//
//   shown  the default, as --help shows it; empty: nothing
//   store  told the number
CLI::Option* add_whole(CLI::App& verb, const std::string& flag, Whole accepted,
                       const std::string& shown, const std::function<void(int64_t)>& store,
                       const std::string& help);

template <std::integral T>
CLI::Option* add_whole(CLI::App& verb, const std::string& flag, T& value, Whole accepted,
                       const std::string& help) {
  constexpr T kLargest = std::numeric_limits<T>::max();
  if (std::cmp_less(kLargest, accepted.max)) accepted.max = static_cast<int64_t>(kLargest);
  return add_whole(
      verb, flag, accepted, std::to_string(value),
      [&value](int64_t number) { value = static_cast<T>(number); }, help);
}

CLI::Option* add_whole(CLI::App& verb, const std::string& flag, std::optional<int64_t>& value,
                       Whole accepted, const std::string& help);

// A number, never infinity or not-a-number.
CLI::Option* add_real(CLI::App& verb, const std::string& flag, double& value, Real accepted,
                      const std::string& help);

// One of a few words.
//
//   shown  the default
//   store  told the place of the word given
CLI::Option* add_word(CLI::App& verb, const std::string& flag,
                      const std::vector<std::string>& words, const std::string& shown,
                      const std::function<void(size_t)>& store, const std::string& help);

CLI::Option* add_word(CLI::App& verb, const std::string& flag, std::string& value,
                      const std::vector<std::string>& words, const std::string& help);

template <class E>
CLI::Option* add_word(CLI::App& verb, const std::string& flag, E& value,
                      const std::vector<std::pair<std::string, E>>& words,
                      const std::string& help) {
  std::vector<std::string> names;
  std::string shown;
  for (const auto& [name, meant] : words) {
    names.push_back(name);
    if (meant == value) shown = name;
  }
  const auto store = [&value, words](size_t place) { value = words[place].second; };
  return add_word(verb, flag, names, shown, store, help);
}

// Reads a number that is a part of an argument or stands in a file.
//
//   place  how the message calls it: "--weight a=x"
//
// Throws Error (usage).
double read_real(const std::string& place, const std::string& text, Real accepted);
int64_t read_whole(const std::string& place, const std::string& text, Whole accepted);

}  // namespace anabranch
