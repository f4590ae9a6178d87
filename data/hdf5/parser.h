// Finds what is in an HDF5 file without the HDF5 library, which crashes on damaged files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "data/hdf5/file.h"

namespace anabranch::hdf5 {

// Reads the format that the library and h5py write unless told otherwise ("earliest"): superblock 0
// or 1, groups as B-trees of symbols, object headers of version 1, attributes in the header.
//
// Every address, size and count is checked against the file before it is used. Throws data_error.
//
// Source: HDF5 File Format Specification Version 3.0, the sections named in the sources.
class Parser {
 public:
  using Attributes = std::map<std::pair<std::string, std::string>, Hdf5Attribute>;

  Parser(const InputFile& file, std::vector<Hdf5DataSet>& data_sets, Attributes& attributes)
      : file_(file), data_sets_(data_sets), attributes_(attributes) {}

  void run();

 private:
  class Bytes;
  struct Type;

  // What the messages of one object header say.
  struct Object {
    uint64_t tree = 0, heap = 0;
    bool group = false, has_space = false, has_type = false, has_layout = false;
    bool contiguous = false, external = false;
    uint64_t address = 0, bytes = 0;
    std::vector<uint64_t> extents;
    Hdf5Type type = Hdf5Type::kOther;
  };

  [[nodiscard]] Error broken(const std::string& why) const;
  [[nodiscard]] Bytes take(uint64_t address, uint64_t size) const;
  void visit(uint64_t address, const std::string& name, int depth);
  void read_header(uint64_t address, const std::string& name, Object& object);
  void read_messages(Bytes block, const std::string& name, Object& object,
                     std::vector<std::pair<uint64_t, uint64_t>>& more);
  void read_message(unsigned kind, Bytes body, const std::string& name, Object& object);
  void read_attribute(Bytes body, const std::string& object);
  void read_tree(uint64_t address, uint64_t heap, const std::string& group, int depth);
  void read_symbols(uint64_t address, uint64_t heap, const std::string& group, int depth);
  void add_data_set(const std::string& name, const Object& object);
  [[nodiscard]] std::vector<uint64_t> read_space(Bytes& body) const;
  [[nodiscard]] Type read_type(Bytes body) const;
  [[nodiscard]] std::string read_name(uint64_t heap, uint64_t offset) const;
  [[nodiscard]] std::string read_heap_string(Bytes& body) const;
  void enter(uint64_t address);

  void leave(uint64_t address) { open_.erase(address); }

  const InputFile& file_;
  std::vector<Hdf5DataSet>& data_sets_;
  Attributes& attributes_;
  std::set<uint64_t> open_;  // groups and nodes on the way here: none may be inside itself
  int64_t entered_ = 0;      // several links to one group count each time
};

}  // namespace anabranch::hdf5
