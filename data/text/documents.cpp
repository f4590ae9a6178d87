#include "data/text/documents.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "data/text/byte_stream.h"
#include "data/text/sources.h"

namespace anabranch {
namespace {

class WholeFile final : public DocumentSource {
 public:
  WholeFile(const std::string& path, const TextFormat& format)
      : stream_(path), most_(format.max_document_bytes) {}

  bool next(std::string& document) override {
    if (std::exchange(done_, true)) return false;
    document.clear();
    constexpr size_t kPart = size_t{1} << 20U;
    for (size_t n = kPart; n > 0;) {
      const size_t size = document.size();
      document.resize(size + kPart);
      n = stream_.read(document.data() + size, kPart);
      document.resize(size + n);
      if (std::ssize(document) > most_) {
        throw data_error(where(), " is one document of more than ", most_,
                         " bytes; take lines or paragraphs as documents, or raise the limit");
      }
    }
    return true;
  }

  [[nodiscard]] int64_t bytes_read() const override { return stream_.consumed(); }

  [[nodiscard]] std::string where() const override { return stream_.path(); }

 private:
  ByteStream stream_;
  int64_t most_;
  bool done_ = false;
};

class Lines final : public DocumentSource {
 public:
  Lines(const std::string& path, const TextFormat& format)
      : reader_(path, format.max_document_bytes) {}

  bool next(std::string& document) override {
    while (reader_.next(document)) {
      if (!document.empty()) return true;
    }
    return false;
  }

  [[nodiscard]] int64_t bytes_read() const override { return reader_.stream().consumed(); }

  [[nodiscard]] std::string where() const override {
    return join(reader_.stream().path(), ":", reader_.number());
  }

 private:
  LineReader reader_;
};

class Paragraphs final : public DocumentSource {
 public:
  Paragraphs(const std::string& path, const TextFormat& format)
      : reader_(path, format.max_document_bytes), most_(format.max_document_bytes) {}

  bool next(std::string& document) override {
    document.clear();
    while (reader_.next(line_)) {
      const bool blank = line_.find_first_not_of(" \t\r\f\v") == std::string::npos;
      if (blank && document.empty()) continue;
      if (blank) return true;
      if (document.empty()) {
        first_ = reader_.number();
      } else {
        document += '\n';
      }
      document += line_;
      if (std::ssize(document) > most_) {
        throw data_error(where(), ": the paragraph is longer than ", most_,
                         " bytes; take lines as documents, or raise the limit");
      }
    }
    return !document.empty();
  }

  [[nodiscard]] int64_t bytes_read() const override { return reader_.stream().consumed(); }

  [[nodiscard]] std::string where() const override {
    return join(reader_.stream().path(), ":", first_);
  }

 private:
  LineReader reader_;
  int64_t most_;
  int64_t first_ = 0;
  std::string line_;
};

// The kind that a name stands for.
TextKind kind_of(std::string_view path) {
  for (const std::string_view ending : {".gz", ".zst"}) {
    if (path.ends_with(ending)) path.remove_suffix(ending.size());
  }
  for (const std::string_view ending : {".jsonl", ".ndjson", ".json"}) {
    if (path.ends_with(ending)) return TextKind::kJsonLines;
  }
  return path.ends_with(".parquet") ? TextKind::kParquet : TextKind::kPlain;
}

}  // namespace

std::unique_ptr<DocumentSource> open_plain_text(const std::string& path, const TextFormat& format) {
  switch (format.unit) {
    case TextUnit::kLine:
      return std::make_unique<Lines>(path, format);
    case TextUnit::kParagraph:
      return std::make_unique<Paragraphs>(path, format);
    default:
      return std::make_unique<WholeFile>(path, format);
  }
}

std::unique_ptr<DocumentSource> open_documents(const std::string& path, const TextFormat& format) {
  if (InputFile(path).size() == 0) {
    throw data_error(path, " is empty; remove it from the inputs, or is it a failed download?");
  }
  switch (format.kind == TextKind::kAuto ? kind_of(path) : format.kind) {
    case TextKind::kJsonLines:
      return open_json_lines(path, format);
    case TextKind::kParquet:
      return open_parquet(path, format);
    default:
      return open_plain_text(path, format);
  }
}

int64_t count_words(std::string_view text) {
  int64_t words = 0;
  bool before = true;  // white space
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    words += before && !space ? 1 : 0;
    before = space;
  }
  return words;
}

bool is_utf8(std::string_view bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto* end = p + bytes.size();
  while (p < end) {
    uint64_t word = 0;
    if (end - p >= 8) {
      std::memcpy(&word, p, 8);
      if ((word & 0x8080808080808080U) == 0) {
        p += 8;
        continue;
      }
    }
    if (*p < 0x80) {
      ++p;
      continue;
    }
    // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
    const int more = *p >= 0xF0 ? 3 : *p >= 0xE0 ? 2 : 1;
    if (*p < 0xC2 || *p > 0xF4 || end - p <= more) return false;
    const unsigned low = *p == 0xE0 ? 0xA0U : *p == 0xF0 ? 0x90U : 0x80U;
    const unsigned high = *p == 0xED ? 0x9FU : *p == 0xF4 ? 0x8FU : 0xBFU;
    if (p[1] < low || p[1] > high) return false;
    for (int i = 2; i <= more; ++i) {
      if ((p[i] & 0xC0U) != 0x80U) return false;
    }
    p += more + 1;
  }
  return true;
}

}  // namespace anabranch
