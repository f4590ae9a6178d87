// Files by descriptor: positioned reads and writes that either do all of it or say why not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace anabranch {

// A file opened for reading; one object serves any number of threads.
class InputFile {
 public:
  // Throws data_error if there is no such file or it is no regular file, else io_error.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  // Bytes in the file when it was opened.
  [[nodiscard]] int64_t size() const { return size_; }

  // Reads `bytes` bytes from byte `offset` on. Throws data_error if the file ends before, io_error
  // if the disk fails.
  void read(int64_t offset, void* to, size_t bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// A file that appears under its name whole or not at all: it is written as `path`.tmp, and
// `commit` waits for the disk and renames. Without `commit` the temporary file is removed.
class AtomicFile {
 public:
  // Opens the temporary file and empties it. Throws io_error.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Makes sure that the disk has room for the first `bytes` bytes. Throws io_error.
  void reserve(int64_t bytes);

  // Cuts the file, or extends it by a hole. Throws io_error.
  void resize(int64_t bytes);

  // Writes at a byte offset; may be called from several threads. Throws io_error.
  void write(int64_t offset, const void* from, size_t bytes);

  // fsync, rename, fsync of the folder. Throws io_error; then the old file, if any, is as it was.
  void commit();

 private:
  std::string path_, temporary_;
  int descriptor_ = -1;
  bool committed_ = false;
};

// Writes a small file through an AtomicFile. Throws io_error.
void write_atomically(const std::string& path, std::string_view bytes);

// Waits until the entries of a folder (new names, renames) are on the disk. Throws io_error.
void sync_folder(const std::string& path);

}  // namespace anabranch
