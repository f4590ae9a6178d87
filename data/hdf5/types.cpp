#include "core/base/error.h"
#include "data/hdf5/file.h"

namespace anabranch {

int64_t size_of(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kU8:
      return 1;
    case Hdf5Type::kU16:
    case Hdf5Type::kBF16:
      return 2;
    case Hdf5Type::kU32:
    case Hdf5Type::kI32:
    case Hdf5Type::kF32:
      return 4;
    case Hdf5Type::kU64:
    case Hdf5Type::kI64:
    case Hdf5Type::kF64:
      return 8;
    case Hdf5Type::kOther:
      return 0;
  }
  return 0;
}

const char* name_of(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kU8:
      return "uint8";
    case Hdf5Type::kU16:
      return "uint16";
    case Hdf5Type::kU32:
      return "uint32";
    case Hdf5Type::kU64:
      return "uint64";
    case Hdf5Type::kI32:
      return "int32";
    case Hdf5Type::kI64:
      return "int64";
    case Hdf5Type::kF32:
      return "float32";
    case Hdf5Type::kF64:
      return "float64";
    case Hdf5Type::kBF16:
      return "bfloat16";
    case Hdf5Type::kOther:
      return "a type that we do not read";
  }
  return "?";
}

int64_t Hdf5DataSet::count() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

}  // namespace anabranch
