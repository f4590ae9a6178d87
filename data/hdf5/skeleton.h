// A place in memory for the HDF5 library to write to. Only for data/hdf5/*.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "data/hdf5/handle.h"
#include "data/hdf5/raw_file.h"

namespace anabranch::hdf5 {

// A sparse file in memory: only pages that were written exist, so that room for large contents
// costs nothing.
//
// The library does not survive a disk that fails under it: when its own write or close fails it
// keeps the file open and crashes at the end of the process. Here nothing can fail.
class Skeleton {
 public:
  static constexpr uint64_t kPage = 4096;

  // Makes a file access property list use this object; keep both handles while the file is open.
  [[nodiscard]] Handle register_driver() const;
  void use(const Handle& driver, const Handle& access);

  void read(uint64_t at, void* to, size_t bytes) const;
  void write(uint64_t at, const void* from, size_t bytes);

  // Bytes of the whole file, known once the library has closed it.
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(size_); }

  void set_size(uint64_t size) { size_ = size; }

  // Writes the pages that exist, and gives the file its size. Throws io_error.
  void copy(AtomicFile& to) const;

 private:
  std::map<uint64_t, std::array<char, kPage>> pages_;  // by number
  uint64_t size_ = 0;
};

}  // namespace anabranch::hdf5
