// Where text comes from: files of several formats, as a sequence of documents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace anabranch {

enum class TextKind : uint8_t {
  kAuto,       // by the name: .jsonl, .ndjson, .json and .parquet; anything else is plain text
  kPlain,      // documents as TextUnit says
  kJsonLines,  // one object a line
  kParquet
};

// What a document of plain text is.
enum class TextUnit : uint8_t {
  kFile,      // the whole file
  kLine,      // a line without its newline; empty lines only separate
  kParagraph  // lines between blank lines (spaces, tabs, returns), joined by newlines
};

struct TextFormat {
  TextKind kind = TextKind::kAuto;
  TextUnit unit = TextUnit::kFile;
  std::string field = "text";                      // of a JSON object, or column of a Parquet file
  int64_t max_document_bytes = int64_t{1} << 28U;  // also of a line; longer ones are refused
};

// Reads the documents of one file, in order. Plain text keeps every byte, whether UTF-8 or not;
// JSON and Parquet strings that are not UTF-8 are refused.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;

  // The next document, which may be empty; false at the end. Throws data_error that names file and
  // line or row for anything that is not as the format says.
  virtual bool next(std::string& document) = 0;

  // Bytes of the file that are used up, for progress.
  [[nodiscard]] virtual int64_t bytes_read() const = 0;

  // "file:line" or "file:row" of the last document.
  [[nodiscard]] virtual std::string where() const = 0;
};

// Opens a file; .gz and .zst are decompressed. Throws data_error (none such; empty; no Parquet
// reader in this build).
std::unique_ptr<DocumentSource> open_documents(const std::string& path, const TextFormat& format);

struct InputText {
  std::string path;
  int64_t bytes;
};

// The files of paths, folders (all files below, but no hidden ones) and patterns with * ? [ ], in
// the given order, and sorted by bytes within each. Throws data_error if one of them gives no file
// or a file comes twice.
std::vector<InputText> list_inputs(const std::vector<std::string>& patterns);

// The words of a text: runs of bytes other than the white space of ASCII (space, tab, newline,
// vertical tab, form feed, carriage return), as `wc -w` counts them in the C locale.
int64_t count_words(std::string_view text);

// True if the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace anabranch
