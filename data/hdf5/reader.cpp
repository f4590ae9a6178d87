#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <hdf5.h>

#include "core/base/error.h"
#include "data/hdf5/file.h"
#include "data/hdf5/handle.h"

namespace anabranch {
namespace {

using hdf5::Handle;
using Attributes = std::map<std::pair<std::string, std::string>, Hdf5Attribute>;

constexpr size_t kLongestString = 1U << 20U;

// Walks through an open file and notes what is in it.
class Lister {
 public:
  Lister(const InputFile& file, std::vector<Hdf5DataSet>& data_sets, Attributes& attributes)
      : file_(file), data_sets_(data_sets), attributes_(attributes) {}

  void walk(hid_t root) {
    list_attributes(root, "");
    const auto visit = [](hid_t from, const char* name, const H5O_info_t* info,
                          void* self) -> herr_t {
      return static_cast<Lister*>(self)->visit(from, name, *info);
    };
    if (H5Ovisit2(root, H5_INDEX_NAME, H5_ITER_INC, visit, this, H5O_INFO_BASIC) < 0) {
      if (!failure_.empty()) throw data_error(failure_);
      throw data_error(file_.path(), " is a damaged HDF5 file: ", hdf5::last_error());
    }
  }

 private:
  // Called by C code, which no exception may cross.
  herr_t visit(hid_t from, const char* name, const H5O_info_t& info) noexcept {
    try {
      if (info.type == H5O_TYPE_DATASET) note_data_set(from, name);
      if (info.type == H5O_TYPE_GROUP && std::string(name) != ".") {
        list_attributes(check(H5Gopen2(from, name, H5P_DEFAULT), name).get(), name);
      }
      return 0;
    } catch (const std::exception& error) {
      failure_ = error.what();
      return -1;
    }
  }

  Handle check(hid_t id, const std::string& what) const {
    if (id < 0) throw data_error(file_.path(), ": cannot read ", what, ": ", hdf5::last_error());
    return Handle(id);
  }

  void note_data_set(hid_t from, const std::string& name) {
    const Handle opened = check(H5Dopen2(from, name.c_str(), H5P_DEFAULT), name);
    list_attributes(opened.get(), name);
    Hdf5DataSet found;
    found.name = name;
    found.type = element_type(opened.get(), name);
    const Handle space = check(H5Dget_space(opened.get()), name);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0 || rank > H5S_MAX_RANK)
      throw data_error(file_.path(), ": ", name, " has no shape");
    std::vector<hsize_t> extents(static_cast<size_t>(rank));
    if (H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) < 0) {
      throw data_error(file_.path(), ": ", name, " has no shape");
    }
    note_place(opened.get(), extents, found);
    data_sets_.push_back(std::move(found));
  }

  // Fills in the shape and, if its bytes lie in one piece inside the file, the offset.
  void note_place(hid_t opened, const std::vector<hsize_t>& extents, Hdf5DataSet& found) const {
    // Divisions, since products of hostile extents overflow.
    int64_t room = std::numeric_limits<int64_t>::max() / std::max<int64_t>(1, size_of(found.type));
    for (const hsize_t extent : extents) {
      if (extent > static_cast<hsize_t>(room)) {
        throw data_error(file_.path(), ": ", found.name, " says that it has an extent of ", extent,
                         ", more than any file holds: the file is damaged");
      }
      if (extent > 0) room /= static_cast<int64_t>(extent);
      found.shape.push_back(static_cast<int64_t>(extent));
    }
    const Handle creation = check(H5Dget_create_plist(opened), found.name);
    if (H5Pget_layout(creation.get()) != H5D_CONTIGUOUS) return;
    if (H5Pget_external_count(creation.get()) != 0) return;
    if (found.bytes() == 0) {
      found.offset = 0;
      return;
    }
    const haddr_t offset = H5Dget_offset(opened);
    if (offset == HADDR_UNDEF) return;  // never written
    const auto size = static_cast<uint64_t>(file_.size());
    const auto bytes = static_cast<uint64_t>(found.bytes());
    if (offset > size || bytes > size - offset) {
      throw data_error(file_.path(), ": ", found.name, " says that it has ", bytes,
                       " bytes from byte ", offset, " on, but the file ends at byte ", size,
                       ": it is truncated or damaged");
    }
    found.offset = static_cast<int64_t>(offset);
  }

  [[nodiscard]] Hdf5Type element_type(hid_t opened, const std::string& name) const {
    const Handle type = check(H5Dget_type(opened), name);
    const std::pair<hid_t, Hdf5Type> known[] = {
        {H5T_STD_U8LE, Hdf5Type::kU8},    {H5T_STD_U16LE, Hdf5Type::kU16},
        {H5T_STD_U32LE, Hdf5Type::kU32},  {H5T_STD_U64LE, Hdf5Type::kU64},
        {H5T_STD_I32LE, Hdf5Type::kI32},  {H5T_STD_I64LE, Hdf5Type::kI64},
        {H5T_IEEE_F32LE, Hdf5Type::kF32}, {H5T_IEEE_F64LE, Hdf5Type::kF64}};
    for (const auto& [stored, meaning] : known) {
      if (H5Tequal(type.get(), stored) <= 0) continue;
      const auto label = attributes_.find({name, "dtype"});
      const bool brain = label != attributes_.end() && label->second == Hdf5Attribute("bfloat16");
      return brain && meaning == Hdf5Type::kU16 ? Hdf5Type::kBF16 : meaning;
    }
    return Hdf5Type::kOther;
  }

  void list_attributes(hid_t object, const std::string& name) {
    object_ = name;
    const auto visit = [](hid_t from, const char* attribute, const H5A_info_t* /*info*/,
                          void* self) -> herr_t {
      return static_cast<Lister*>(self)->visit_attribute(from, attribute);
    };
    hsize_t place = 0;
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &place, visit, this) < 0) {
      if (!failure_.empty()) throw data_error(failure_);
      throw data_error(file_.path(), ": damaged attributes of /", name, ": ", hdf5::last_error());
    }
  }

  herr_t visit_attribute(hid_t from, const char* name) noexcept {
    try {
      const Handle opened = check(H5Aopen(from, name, H5P_DEFAULT), name);
      note_attribute(opened.get(), name);
      return 0;
    } catch (const std::exception& error) {
      failure_ = error.what();
      return -1;
    }
  }

  // Attributes of other kinds (arrays, compounds) are left out.
  void note_attribute(hid_t opened, const std::string& name) {
    const Handle space = check(H5Aget_space(opened), name), type = check(H5Aget_type(opened), name);
    if (H5Sget_simple_extent_npoints(space.get()) != 1) return;
    Hdf5Attribute value;
    herr_t status = 0;
    const H5T_class_t kind = H5Tget_class(type.get());
    if (kind == H5T_INTEGER) {
      status = H5Aread(opened, H5T_NATIVE_INT64, &value.emplace<int64_t>());
    } else if (kind == H5T_FLOAT) {
      status = H5Aread(opened, H5T_NATIVE_DOUBLE, &value.emplace<double>());
    } else if (kind == H5T_STRING) {
      status = read_string(opened, type.get(), value.emplace<std::string>());
    } else {
      return;
    }
    if (status < 0) {
      throw data_error(file_.path(), ": cannot read attribute ", name, ": ", hdf5::last_error());
    }
    attributes_[{object_, name}] = std::move(value);
  }

  static herr_t read_string(hid_t opened, hid_t type, std::string& to) {
    if (H5Tis_variable_str(type) > 0) {
      char* text = nullptr;
      const herr_t status = H5Aread(opened, type, static_cast<void*>(&text));
      if (status >= 0 && text != nullptr) to.assign(text, strnlen(text, kLongestString));
      H5free_memory(text);
      return status;
    }
    const size_t size = H5Tget_size(type);
    if (size > kLongestString) return -1;
    to.resize(size);
    const herr_t status = H5Aread(opened, type, to.data());
    to.resize(strnlen(to.data(), size));
    return status;
  }

  const InputFile& file_;
  std::vector<Hdf5DataSet>& data_sets_;
  Attributes& attributes_;
  std::string object_, failure_;
};

}  // namespace

Hdf5Reader::Hdf5Reader(const std::string& path) : file_(path) {
  const hdf5::Quiet quiet;
  if (file_.size() == 0) throw data_error(path, " is empty; expected an HDF5 file");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_file_locking(access.get(), false, true);
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!file.ok()) {
    throw data_error(path,
                     " is not an HDF5 file, or is truncated or damaged: ", hdf5::last_error());
  }
  Lister(file_, data_sets_, attributes_).walk(file.get());
}

const Hdf5DataSet* Hdf5Reader::find(const std::string& name) const {
  for (const Hdf5DataSet& data_set : data_sets_) {
    if (data_set.name == name) return &data_set;
  }
  return nullptr;
}

const Hdf5DataSet& Hdf5Reader::require(const std::string& name, Hdf5Type type, int rank) const {
  const Hdf5DataSet* found = find(name);
  if (found == nullptr) {
    std::string there;
    for (const Hdf5DataSet& data_set : data_sets_) {
      if (there.size() < 200) there += (there.empty() ? "" : ", ") + data_set.name;
    }
    throw data_error(path(), " has no data set '", name,
                     "'; it has: ", there.empty() ? "none" : there);
  }
  if (found->type != type) {
    throw data_error(path(), ": ", name, " holds ", name_of(found->type), "; expected ",
                     name_of(type));
  }
  if (std::ssize(found->shape) != rank) {
    throw data_error(path(), ": ", name, " has ", found->shape.size(), " axes; expected ", rank);
  }
  if (found->offset < 0) {
    throw data_error(path(), ": ", name, " is chunked, compressed or was never written; expected ",
                     "a contiguous data set; rewrite the file with: h5repack -l CONTI -f NONE");
  }
  return *found;
}

bool Hdf5Reader::has_attribute(const std::string& name, const std::string& object) const {
  return attributes_.contains({object, name});
}

const Hdf5Attribute& Hdf5Reader::attribute(const std::string& name,
                                           const std::string& object) const {
  const auto at = attributes_.find({object, name});
  if (at == attributes_.end()) {
    throw data_error(path(), ": /", object, " has no attribute '", name, "' of a type we read");
  }
  return at->second;
}

int64_t Hdf5Reader::int_attribute(const std::string& name, const std::string& object) const {
  const auto* value = std::get_if<int64_t>(&attribute(name, object));
  if (value == nullptr) throw data_error(path(), ": attribute ", name, " is not an integer");
  return *value;
}

double Hdf5Reader::double_attribute(const std::string& name, const std::string& object) const {
  const auto* value = std::get_if<double>(&attribute(name, object));
  if (value == nullptr) throw data_error(path(), ": attribute ", name, " is not a number");
  return *value;
}

std::string Hdf5Reader::string_attribute(const std::string& name, const std::string& object) const {
  const auto* value = std::get_if<std::string>(&attribute(name, object));
  if (value == nullptr) throw data_error(path(), ": attribute ", name, " is not a string");
  return *value;
}

void Hdf5Reader::read(const Hdf5DataSet& from, void* to, int64_t bytes, int64_t first) const {
  AB_CHECK(from.offset >= 0, path(), ": ", from.name, " is not contiguous");
  AB_CHECK(first >= 0 && bytes >= 0 && first <= from.bytes() && bytes <= from.bytes() - first,
           path(), ": bytes ", first, " to ", first + bytes, " are outside of ", from.name,
           ", which has ", from.bytes());
  file_.read(from.offset + first, to, static_cast<size_t>(bytes));
}

void Hdf5Reader::check_element(const Hdf5DataSet& from, size_t bytes) const {
  AB_CHECK(static_cast<int64_t>(bytes) == size_of(from.type), path(), ": ", from.name, " has ",
           name_of(from.type), ", not elements of ", bytes, " bytes");
}

}  // namespace anabranch
