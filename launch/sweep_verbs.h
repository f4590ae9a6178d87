// The verbs of `anabranch sweep` that have a file of their own, and what several of them take.
#pragma once

#include <string>

#include "runtime/sweep/expand.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

void add_sweep_plan(CLI::App& verb);
void add_sweep_report(CLI::App& verb);
void add_sweep_run(CLI::App& verb, int& exit_code);
void add_sweep_status(CLI::App& verb);

// Declares FILE, --set and --scale, into what outlives the verb.
void add_sweep_options(CLI::App& verb, std::string& file, SweepOptions& options);
// --vocab.
void add_sweep_vocabulary(CLI::App& verb, SweepOptions& options);

}  // namespace anabranch
