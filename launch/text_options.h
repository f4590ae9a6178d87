// The options by which verbs are told what text files hold.
#pragma once

#include <memory>

#include "data/text/documents.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

// Declares --format, --document, --field and --max-document-mib. What they say is in the result
// once the command line is parsed.
std::shared_ptr<TextFormat> add_text_options(CLI::App& verb);

}  // namespace anabranch
