#include "launch/program.h"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "launch/rank_process.h"
#include "runtime/config/nearest.h"

namespace anabranch {

namespace {

// A list that is empty without its option is no default worth showing.
void hide_empty_lists(CLI::App& app) {
  for (std::vector<CLI::App*> left{&app}; !left.empty();) {
    CLI::App* verb = left.back();
    left.pop_back();
    for (CLI::Option* option : verb->get_options()) {
      if (option->get_default_str() == "[]") option->default_str("");
    }
    for (CLI::App* below : verb->get_subcommands(nullptr)) left.push_back(below);
  }
}

void add_verbs(CLI::App& app, int& exit_code) {
  add_train(app, exit_code);
  add_tokenizer(app);
  add_shard(app);
  add_sweep(app, exit_code);
  add_plan(app);
  add_eval(app, exit_code);
  add_generate(app);
  add_score(app, exit_code);
  add_checkpoint(app, exit_code);
  add_bench(app, exit_code);
  add_toy(app, exit_code);
  add_config(app);
  add_watch(app);
  add_export(app);
  add_doctor(app, exit_code);
  hide_empty_lists(app);
}

// The deepest verb that was named.
CLI::App* named_verb(CLI::App& app) {
  CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().back();
  return verb;
}

// What the words of `verb` are: flags for a word that starts with "-", else its own verbs.
std::vector<std::string> candidates(CLI::App& verb, bool flags) {
  std::vector<std::string> words;
  if (flags) {
    for (const CLI::Option* option : verb.get_options()) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : verb.get_subcommands(nullptr)) words.push_back(sub->get_name());
  }
  return words;
}

// ": did you mean ...", if there is a near word.
std::string hint(CLI::App& app) {
  CLI::App& verb = *named_verb(app);
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return "";
  const std::string word = extras[0].substr(0, extras[0].find('='));
  const bool is_flag = word.starts_with("-");
  const std::vector<std::string> words = candidates(verb, is_flag);
  const std::string nearest = nearest_word(word, words);
  if (!nearest.empty()) return "; did you mean " + nearest + "?";
  if (is_flag || words.empty()) return "";
  return "; the verbs are " + word_list(words);
}

// What ends this process is said once by the ranks of a job.
int say(const std::string& what, Fault fault) {
  let_rank_zero_speak(started_rank());
  std::cerr << "anabranch: error: " + what + "\n";
  return static_cast<int>(fault);
}

int show(const std::string& text) {
  if (started_rank() == 0) std::cout << text;
  return 0;
}

// CLI11's own words for a value too few or too many speak of its types.
std::string in_our_words(const CLI::ParseError& failure) {
  const std::string converting = "Could not convert: ";
  std::string what = failure.what();
  const std::string option = what.substr(0, what.find(": "));
  if (failure.get_name() == "ArgumentMismatch") {
    return option + (what.ends_with("missing") ? ": found no value; expected one"
                                               : ": found more than one value; expected one");
  }
  const size_t equals = what.find(" = ");
  if (what.starts_with(converting) && equals != std::string::npos) {  // only flags are converted
    return what.substr(converting.size(), equals - converting.size()) + ": found " +
           quote(what.substr(equals + 3)) + "; expected no value";
  }
  return what;
}

int usage_failure(CLI::App& app, const CLI::ParseError& failure) {
  // A missing verb is often a mistyped one, which CLI11 then counts among the extras.
  std::string what = in_our_words(failure);
  const std::vector<std::string> extras = app.remaining(true);
  if (!extras.empty()) what = "unknown argument " + extras[0];
  std::string command = "anabranch";
  for (CLI::App* verb = &app; !verb->get_subcommands().empty();) {
    verb = verb->get_subcommands().back();
    command += " " + verb->get_name();
  }
  return say(what + hint(app) + "\n(" + command + " --help lists what it takes)", Fault::kUsage);
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Trains mixture language models, from raw text to a table of results.", "anabranch");
  int exit_code = 0;
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", build_lines().front());
  add_verbs(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return show(app.help());
  } catch (const CLI::CallForAllHelp&) {
    return show(app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForVersion& version) {
    return show(join(version.what(), "\n"));
  } catch (const CLI::ParseError& failure) {
    return usage_failure(app, failure);
  }
  return exit_code;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int anabranch_main(int argc, char** argv) {
  try {
    const int code = parse_and_run(argc, argv);
    std::cout.flush();
    if (!std::cout) throw io_error("cannot write to the standard output");
    return code;
  } catch (const Error& error) {
    return say(error.what(), error.fault());
  } catch (const std::filesystem::filesystem_error& error) {
    return say(error.what(), Fault::kIo);
  } catch (const std::ios_base::failure& error) {
    return say(join("cannot read or write a file: ", error.what()), Fault::kIo);
  } catch (const std::bad_alloc&) {
    return say("out of memory", Fault::kInternal);
  } catch (const std::exception& error) {
    return say(error.what(), Fault::kInternal);
  }
}

}  // namespace anabranch
