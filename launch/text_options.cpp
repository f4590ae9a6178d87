#include "launch/text_options.h"

#include <map>
#include <string>

#include <CLI/CLI.hpp>

namespace anabranch {

std::shared_ptr<TextFormat> add_text_options(CLI::App& verb) {
  auto format = std::make_shared<TextFormat>();
  const std::map<std::string, TextKind> kinds{{"auto", TextKind::kAuto},
                                              {"plain", TextKind::kPlain},
                                              {"jsonl", TextKind::kJsonLines},
                                              {"parquet", TextKind::kParquet}};
  const std::map<std::string, TextUnit> units{
      {"file", TextUnit::kFile}, {"line", TextUnit::kLine}, {"paragraph", TextUnit::kParagraph}};
  verb.add_option("--format", format->kind,
                  "auto (by the file's name), plain, jsonl or parquet; .gz and .zst on top")
      ->transform(CLI::CheckedTransformer(kinds).description("{auto,plain,jsonl,parquet}"))
      ->option_text("KIND");
  verb.add_option("--document", format->unit,
                  "a document of plain text: file (default), line or paragraph")
      ->transform(CLI::CheckedTransformer(units).description("{file,line,paragraph}"))
      ->option_text("UNIT");
  verb.add_option("--field", format->field, "field of a JSON line or column of Parquet (text)");
  verb.add_option_function<int64_t>(
          "--max-document-mib",
          [format](const int64_t& mib) { format->max_document_bytes = mib << 20U; },
          "longer documents are refused (256)")
      ->check(CLI::Range(1, 1 << 20));
  return format;
}

}  // namespace anabranch
