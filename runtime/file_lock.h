// A lock that ends with its holder, however that ends.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace anabranch {

// Holds a file by flock until the last descriptor of it is closed: this object's, and those of
// processes that it was handed to (let_children_inherit).
class FileLock {
 public:
  // Makes the file if need be and locks it; nothing if another holds it for all of `patience`
  // seconds, which also bridges the moment in which someone looks (is_held). Throws Error (I/O) if
  // the file cannot be opened, or its file system knows no flock.
  static std::optional<FileLock> take(const std::filesystem::path& file, double patience = 1);

  // Whether someone holds it. A file that is not there, or cannot be looked at, is not held.
  static bool is_held(const std::filesystem::path& file);

  ~FileLock();

  FileLock(FileLock&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }

  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Replaces what the file says of its holder. Throws Error (I/O).
  void write(const std::string& line) const;

  // A process started from here on by fork and exec holds the lock too. To be called in the child.
  void let_children_inherit() const;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

// What the file of a lock says, at most 255 bytes of it; empty if it cannot be read.
std::string lock_holder(const std::filesystem::path& file);

// "host n1 process 12 job 7": this process.
std::string holder_line();

}  // namespace anabranch
