#include "launch/text_options.h"

#include <string>

#include <CLI/CLI.hpp>

#include "launch/options.h"

namespace anabranch {

std::shared_ptr<TextFormat> add_text_options(CLI::App& verb) {
  auto format = std::make_shared<TextFormat>();
  add_word<TextKind>(verb, "--format", format->kind,
                     {{"auto", TextKind::kAuto},
                      {"plain", TextKind::kPlain},
                      {"jsonl", TextKind::kJsonLines},
                      {"parquet", TextKind::kParquet}},
                     "auto: by the file's name; .gz and .zst on top");
  add_word<TextUnit>(
      verb, "--document", format->unit,
      {{"file", TextUnit::kFile}, {"line", TextUnit::kLine}, {"paragraph", TextUnit::kParagraph}},
      "what is a document of plain text");
  verb.add_option("--field", format->field, "field of a JSON line or column of Parquet");
  add_whole(
      verb, "--max-document-mib", {1, 1 << 20}, std::to_string(format->max_document_bytes >> 20U),
      [format](int64_t mib) { format->max_document_bytes = mib << 20U; },
      "longer documents are refused");
  return format;
}

}  // namespace anabranch
