#include "launch/options.h"

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

// What was given, in quotes where it would not stand out.
std::string shown_text(const std::string& text) {
  const bool plain =
      !text.empty() && text.size() <= kQuotedBytes &&
      std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) > ' '; });
  return plain ? text : quote(text);
}

Error refusal(const std::string& place, const std::string& text, const std::string& expected) {
  return usage_error(place, ": found ", shown_text(text), "; expected ", expected);
}

bool is_bounded(Whole w) { return w.max != Whole().max; }

std::string text_of(Whole w) {
  return is_bounded(w) ? join("a whole number from ", w.min, " to ", w.max)
                       : join("a whole number of ", w.min, " or more");
}

std::string text_of(Real r) {
  const std::string min = number_text(r.min), max = number_text(r.max);
  const bool bounded = r.max != Real().max;
  if (r.above) return "a number above " + min + (bounded ? " and up to " + max : "");
  return bounded ? "a number from " + min + " to " + max : "a number of " + min + " or more";
}

// "a, b or c".
std::string choice_text(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return text;
}

}  // namespace

int64_t read_whole(const std::string& place, const std::string& text, Whole accepted) {
  int64_t number = 0;
  if (!parse_number(text, number) || number < accepted.min || number > accepted.max) {
    throw refusal(place, text, text_of(accepted));
  }
  return number;
}

double read_real(const std::string& place, const std::string& text, Real accepted) {
  double number = 0;
  const bool reads = parse_number(text, number) && number >= accepted.min && number <= accepted.max;
  if (!reads || (accepted.above && number == accepted.min)) {
    throw refusal(place, text, text_of(accepted));
  }
  return number;
}

CLI::Option* add_whole(CLI::App& verb, const std::string& flag, Whole accepted,
                       const std::string& shown, const std::function<void(int64_t)>& store,
                       const std::string& help) {
  const auto take = [=](const CLI::results_t& given) {
    store(read_whole(flag, given.back(), accepted));
    return true;
  };
  const std::string type =
      is_bounded(accepted) ? join("INT in [", accepted.min, " - ", accepted.max, "]") : "INT";
  return verb.add_option(flag, take, help)->type_name(type)->default_str(shown);
}

CLI::Option* add_whole(CLI::App& verb, const std::string& flag, std::optional<int64_t>& value,
                       Whole accepted, const std::string& help) {
  return add_whole(
      verb, flag, accepted, "", [&value](int64_t number) { value = number; }, help);
}

CLI::Option* add_real(CLI::App& verb, const std::string& flag, double& value, Real accepted,
                      const std::string& help) {
  const auto take = [&value, flag, accepted](const CLI::results_t& given) {
    value = read_real(flag, given.back(), accepted);
    return true;
  };
  return verb.add_option(flag, take, help)->type_name("FLOAT")->default_str(number_text(value));
}

CLI::Option* add_word(CLI::App& verb, const std::string& flag,
                      const std::vector<std::string>& words, const std::string& shown,
                      const std::function<void(size_t)>& store, const std::string& help) {
  const auto take = [=](const CLI::results_t& given) {
    const std::string& word = given.back();
    const auto found = std::ranges::find(words, word);
    if (found == words.end()) {
      const std::string nearest = nearest_word(word, words);
      throw refusal(flag, word,
                    choice_text(words) + (nearest.empty() ? "" : "; nearest is " + nearest));
    }
    store(static_cast<size_t>(found - words.begin()));
    return true;
  };
  std::string type;
  for (const std::string& word : words) type += (type.empty() ? "{" : ",") + word;
  return verb.add_option(flag, take, help)->type_name(type + "}")->default_str(shown);
}

CLI::Option* add_word(CLI::App& verb, const std::string& flag, std::string& value,
                      const std::vector<std::string>& words, const std::string& help) {
  return add_word(
      verb, flag, words, value, [&value, words](size_t place) { value = words[place]; }, help);
}

}  // namespace anabranch
