// safetensors, the format in which models change hands.
//
//   8 bytes  length of the header, little-endian
//   header   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}, and
//            strings under "__metadata__"
//   data     every byte of it belongs to one tensor
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/shape.h"
#include "data/hdf5/raw_file.h"
#include "runtime/checkpoint/state.h"

namespace anabranch {

// Writes tensors by a temporary name and rename, those of the widest type first, so that each
// begins at a multiple of its type. float32, float64, bfloat16. Throws Error (I/O, 74).
//
//   metadata  strings under "__metadata__"
void write_safetensors(const std::string& path, const std::vector<StateItem>& tensors,
                       const std::map<std::string, std::string>& metadata);

// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string type;  // as the file calls it: "F32"
  Shape shape;
  int64_t offset = 0;  // of its first byte in the data
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Reads the text of a header and holds every number of it against the others: nothing is allocated
// by what a file says of itself. Throws Error (data, 65) that names the source and the tensor.
//
//   data_bytes  what lies behind the header
//   source      the file's name, for errors
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& source);

// A file of tensors; one object serves any number of threads.
class SafetensorsReader {
 public:
  // Reads the header alone. Throws Error (data, 65) if it is damaged or does not fit the file.
  explicit SafetensorsReader(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }

  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return header_.metadata;
  }

  // The tensor of that name; null if there is none.
  [[nodiscard]] const SafetensorsEntry* find(const std::string& name) const;

  // Fills `to` (float32 or float64, in the host's memory, of as many elements) from a tensor of
  // type F16, BF16, F32 or F64. Throws Error (data, 65) if it has another type, or holds a value
  // that is not finite.
  void read(const SafetensorsEntry& entry, Tensor& to) const;

 private:
  InputFile file_;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace anabranch
