// HDF5 files the way we write and read them: the library makes the skeleton (names, types, shapes,
// attributes) and is done, and reading does without it, for it crashes on damaged files. Contents
// go by plain pwrite and pread at the data set's offset.
//
// So a full disk is noticed, the library's global lock holds up nobody, and any HDF5 program can
// read the files. Data sets are contiguous, without filters, little-endian.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "data/hdf5/raw_file.h"

namespace anabranch {

namespace hdf5 {
class Skeleton;
}

// kBF16 is a uint16 data set with the attribute dtype = "bfloat16"; kOther is what we do not read.
enum class Hdf5Type : uint8_t { kU8, kU16, kU32, kU64, kI32, kI64, kF32, kF64, kBF16, kOther };

[[nodiscard]] int64_t size_of(Hdf5Type type);
[[nodiscard]] const char* name_of(Hdf5Type type);

using Hdf5Attribute = std::variant<int64_t, double, std::string>;

struct Hdf5DataSet {
  std::string name;  // with its groups, without a leading slash: "model/wte"
  Hdf5Type type = Hdf5Type::kOther;
  std::vector<int64_t> shape;
  int64_t offset = -1;  // first byte in the file; -1 if the data set is not contiguous

  [[nodiscard]] int64_t count() const;

  [[nodiscard]] int64_t bytes() const { return count() * size_of(type); }
};

// Writes one file, in this order: set and add, lay_out, write, commit.
//
// The file has a temporary name until commit. Equal input gives equal bytes: no times are kept.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(std::string path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // An attribute of the file, or of the data set called `object`.
  void set(const std::string& name, Hdf5Attribute value, const std::string& object = "");

  // Announces a data set; groups in its name are made.
  void add(const std::string& name, Hdf5Type type, std::vector<int64_t> shape);

  // Writes the skeleton and reserves the disk space of everything. Throws io_error.
  void lay_out();

  // The data sets with their offsets, in the order of `add`; after lay_out.
  [[nodiscard]] const std::vector<Hdf5DataSet>& data_sets() const { return data_sets_; }

  // Writes bytes of a data set from its byte `first` on and gives the CRC32C of what is in memory.
  // May be called from several threads. Throws io_error.
  uint32_t write(const std::string& name, const void* from, int64_t bytes, int64_t first = 0);

  // fsync, rename to the final name, fsync of the folder. Throws io_error.
  void commit();

 private:
  struct Named {
    std::string object, name;
    Hdf5Attribute value;
  };

  void make_skeleton(hdf5::Skeleton& skeleton);

  std::string path_;
  std::vector<Hdf5DataSet> data_sets_;
  std::map<std::string, size_t> by_name_;
  std::vector<Named> attributes_;
  std::unique_ptr<AtomicFile> file_;
};

// Reads one file, without the HDF5 library: see Parser for the format.
//
// Nothing in the file is trusted: shapes, offsets and sizes are checked against the file's size.
// All faults are data_error that name the file and what was found. Serves any number of threads.
class Hdf5Reader {
 public:
  explicit Hdf5Reader(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

  [[nodiscard]] int64_t file_bytes() const { return file_.size(); }

  // In the order of their names.
  [[nodiscard]] const std::vector<Hdf5DataSet>& data_sets() const { return data_sets_; }

  // Null if there is none.
  [[nodiscard]] const Hdf5DataSet* find(const std::string& name) const;

  // The data set, which must be there, contiguous, of this type and rank.
  [[nodiscard]] const Hdf5DataSet& require(const std::string& name, Hdf5Type type, int rank) const;

  [[nodiscard]] bool has_attribute(const std::string& name, const std::string& object = "") const;
  [[nodiscard]] int64_t int_attribute(const std::string& name,
                                      const std::string& object = "") const;
  [[nodiscard]] double double_attribute(const std::string& name,
                                        const std::string& object = "") const;
  [[nodiscard]] std::string string_attribute(const std::string& name,
                                             const std::string& object = "") const;

  // Reads bytes of a data set from its byte `first` on.
  void read(const Hdf5DataSet& from, void* to, int64_t bytes, int64_t first = 0) const;

  // All elements of a rank-1 data set.
  template <class T>
  [[nodiscard]] std::vector<T> read_all(const std::string& name, Hdf5Type type) const {
    const Hdf5DataSet& from = require(name, type, 1);
    check_element(from, sizeof(T));
    std::vector<T> all(static_cast<size_t>(from.count()));
    read(from, all.data(), from.bytes());
    return all;
  }

  // The file itself, for reads by offset.
  [[nodiscard]] const InputFile& file() const { return file_; }

 private:
  [[nodiscard]] const Hdf5Attribute& attribute(const std::string& name,
                                               const std::string& object) const;
  void check_element(const Hdf5DataSet& from, size_t bytes) const;

  InputFile file_;
  std::vector<Hdf5DataSet> data_sets_;
  std::map<std::pair<std::string, std::string>, Hdf5Attribute> attributes_;
};

}  // namespace anabranch
