// Settings files: another way to give the options by which text becomes tokens.
//
// A file has the sections `text` (what both verbs read), `tokenizer` (of `tokenizer train`) and
// `shard` (of `shard build`). A key stands for the option of its name, max_characters for
// --max-characters; `files` and `source` for what is read. What the command line says wins, and if
// it names text to read, the file's is not read at all.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

// Declares --settings. Must come before the verb's other options: they are set in this order.
//
//   section  whose keys are options of the verb, besides those of `text`; the keys of other
//            sections are checked by name alone
//
// The option throws Error (config) that lists every problem with its line.
void add_settings(CLI::App& verb, const std::string& section);

}  // namespace anabranch
