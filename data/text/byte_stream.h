// The bytes of a file, decompressed if its name ends in .gz or .zst.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/hdf5/raw_file.h"

namespace anabranch {

// Reads forward. Concatenated gzip members and zstd frames are one stream.
class ByteStream {
 public:
  // Throws data_error if there is no such file.
  explicit ByteStream(const std::string& path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Up to `most` bytes; 0 at the end. Throws data_error if compressed data is broken or ends early.
  size_t read(char* to, size_t most);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

  // Bytes of the file on disk that are used up, for progress.
  [[nodiscard]] int64_t consumed() const { return cursor_; }

 private:
  struct Codec;
  struct Gzip;
  struct Zstd;

  [[nodiscard]] size_t read_raw(char* to, size_t most);

  InputFile file_;
  int64_t cursor_ = 0;
  std::unique_ptr<Codec> codec_;  // null: plain
};

// Cuts a stream into lines.
class LineReader {
 public:
  // `longest` is the most bytes a line may have.
  LineReader(const std::string& path, int64_t longest);

  // The next line without its newline; false at the end. Throws data_error for a line too long.
  bool next(std::string& line);

  // Of the line that `next` gave last, from 1.
  [[nodiscard]] int64_t number() const { return number_; }

  [[nodiscard]] const ByteStream& stream() const { return stream_; }

 private:
  ByteStream stream_;
  int64_t longest_;
  int64_t number_ = 0;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace anabranch
