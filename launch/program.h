// The verbs of the program, and what they share.
//
// A verb is one file, verb_<name>.cpp: `add_<name>` declares its options and its callback, which
// reads them, calls into a library and prints. Errors are thrown; anabranch_main() prints them.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

// The lines about this build for the head of a resolved configuration: version, git hash, compiler,
// libraries, device.
std::vector<std::string> build_lines();

// The git hash this was built from, with "+" if files were changed; "unknown" outside git.
std::string git_hash();

// A verb that ends neither well nor with an error (a saved run, a failed check) sets `exit_code`.
void add_bench(CLI::App& app, int& exit_code);
void add_checkpoint(CLI::App& app, int& exit_code);
void add_config(CLI::App& app);
void add_doctor(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_export(CLI::App& app);
void add_generate(CLI::App& app);
void add_plan(CLI::App& app);
void add_score(CLI::App& app, int& exit_code);
void add_shard(CLI::App& app);
void add_sweep(CLI::App& app, int& exit_code);
void add_tokenizer(CLI::App& app);
void add_toy(CLI::App& app, int& exit_code);
void add_train(CLI::App& app, int& exit_code);
void add_watch(CLI::App& app);

}  // namespace anabranch
