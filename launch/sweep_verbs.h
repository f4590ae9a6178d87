// The verbs of `anabranch sweep` that have a file of their own.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

void add_sweep_run(CLI::App& verb, int& exit_code);
void add_sweep_status(CLI::App& verb);

}  // namespace anabranch
