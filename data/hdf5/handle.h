// Handles of the HDF5 library, closed by scope, and its errors as text. Only for data/hdf5/*.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace anabranch::hdf5 {

using Id = int64_t;  // hid_t

// Owns an identifier of any kind.
class Handle {
 public:
  explicit Handle(Id id) : id_(id) {}

  ~Handle() { close(); }

  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}

  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle& operator=(Handle&&) = delete;

  [[nodiscard]] Id get() const { return id_; }

  [[nodiscard]] bool ok() const { return id_ >= 0; }

  // Drops the reference now; false if that failed (for a file: it could not be written).
  bool close();

 private:
  Id id_;
};

// While it lives, this thread's HDF5 errors are not printed.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  void* function_ = nullptr;
  void* data_ = nullptr;
};

// What the library said about the last call that failed, innermost cause first.
std::string last_error();

}  // namespace anabranch::hdf5
