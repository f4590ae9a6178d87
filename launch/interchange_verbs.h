// `checkpoint export` and `checkpoint import`: models handed on and taken over.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

void add_checkpoint_export(CLI::App& checkpoint);
void add_checkpoint_import(CLI::App& checkpoint);

}  // namespace anabranch
