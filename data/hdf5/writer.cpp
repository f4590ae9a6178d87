#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <hdf5.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "data/hdf5/file.h"
#include "data/hdf5/handle.h"
#include "data/hdf5/skeleton.h"

namespace anabranch {
namespace {

using hdf5::Handle;

// All names, types and attributes fit into blocks of this size, which come before the contents.
constexpr hsize_t kSkeletonBlock = 65536;
constexpr int64_t kEntryBytes = 1024;     // at most, of a data set or an attribute in the skeleton
constexpr size_t kLongestString = 60000;  // an attribute must fit into an object header message

Hdf5Type stored_as(Hdf5Type type) { return type == Hdf5Type::kBF16 ? Hdf5Type::kU16 : type; }

hid_t file_type(Hdf5Type type) {
  switch (stored_as(type)) {
    case Hdf5Type::kU8:
      return H5T_STD_U8LE;
    case Hdf5Type::kU16:
      return H5T_STD_U16LE;
    case Hdf5Type::kU32:
      return H5T_STD_U32LE;
    case Hdf5Type::kU64:
      return H5T_STD_U64LE;
    case Hdf5Type::kI32:
      return H5T_STD_I32LE;
    case Hdf5Type::kI64:
      return H5T_STD_I64LE;
    case Hdf5Type::kF32:
      return H5T_IEEE_F32LE;
    case Hdf5Type::kF64:
      return H5T_IEEE_F64LE;
    default:
      AB_FAIL("no HDF5 type for ", name_of(type));
  }
}

// Checks a call of the library while a file is written.
class Checker {
 public:
  explicit Checker(const std::string& path) : path_(path) {}

  Handle operator()(hid_t id, const std::string& what) const {
    if (id < 0) throw io_error("cannot write ", path_, " (", what, "): ", hdf5::last_error());
    return Handle(id);
  }

  void done(herr_t status, const std::string& what) const {
    if (status < 0) throw io_error("cannot write ", path_, " (", what, "): ", hdf5::last_error());
  }

 private:
  const std::string& path_;
};

void write_attribute(hid_t object, const std::string& name, const Hdf5Attribute& value,
                     const Checker& check) {
  const std::string what = "attribute " + name;
  const Handle space = check(H5Screate(H5S_SCALAR), what);
  const auto put = [&](hid_t stored, hid_t given, const void* from) {
    const Handle attribute = check(
        H5Acreate2(object, name.c_str(), stored, space.get(), H5P_DEFAULT, H5P_DEFAULT), what);
    check.done(H5Awrite(attribute.get(), given, from), what);
  };
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    put(H5T_STD_I64LE, H5T_NATIVE_INT64, whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    put(H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, real);
  } else {
    const auto& text = std::get<std::string>(value);
    AB_CHECK(text.size() <= kLongestString, what, " has ", text.size(), " bytes, at most ",
             kLongestString, " fit");
    const Handle type = check(H5Tcopy(H5T_C_S1), what);
    check.done(H5Tset_size(type.get(), text.size() + 1), what);
    check.done(H5Tset_cset(type.get(), H5T_CSET_UTF8), what);
    put(type.get(), type.get(), text.c_str());
  }
}

Handle create_data_set(hid_t file, const Hdf5DataSet& data_set, const Checker& check) {
  const std::string& what = data_set.name;
  const std::vector<hsize_t> extents(data_set.shape.begin(), data_set.shape.end());
  const Handle space =
      check(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), what);
  const Handle creation = check(H5Pcreate(H5P_DATASET_CREATE), what);
  check.done(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), what);
  check.done(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), what);
  check.done(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), what);
  check.done(H5Pset_obj_track_times(creation.get(), false), what);
  const Handle links = check(H5Pcreate(H5P_LINK_CREATE), what);
  check.done(H5Pset_create_intermediate_group(links.get(), 1), what);
  return check(H5Dcreate2(file, what.c_str(), file_type(data_set.type), space.get(), links.get(),
                          creation.get(), H5P_DEFAULT),
               what);
}

}  // namespace

Hdf5Writer::Hdf5Writer(std::string path) : path_(std::move(path)) {}

Hdf5Writer::~Hdf5Writer() = default;

void Hdf5Writer::set(const std::string& name, Hdf5Attribute value, const std::string& object) {
  AB_CHECK(file_ == nullptr, path_, " is laid out already");
  attributes_.push_back({object, name, std::move(value)});
}

void Hdf5Writer::add(const std::string& name, Hdf5Type type, std::vector<int64_t> shape) {
  AB_CHECK(file_ == nullptr, path_, " is laid out already");
  AB_CHECK(by_name_.emplace(name, data_sets_.size()).second, path_, " has two data sets ", name);
  data_sets_.push_back({name, type, std::move(shape), -1});
  if (type == Hdf5Type::kBF16) set("dtype", std::string("bfloat16"), name);
}

void Hdf5Writer::lay_out() {
  AB_CHECK(file_ == nullptr, path_, " is laid out already");
  auto file = std::make_unique<AtomicFile>(path_);
  auto room = static_cast<int64_t>(4 * kSkeletonBlock);
  for (const Hdf5DataSet& data_set : data_sets_) room += data_set.bytes() + kEntryBytes;
  for (const Named& a : attributes_) {
    const auto* text = std::get_if<std::string>(&a.value);
    room += kEntryBytes + (text == nullptr ? 0 : std::ssize(*text));
  }
  file->reserve(room);
  hdf5::Skeleton skeleton;
  make_skeleton(skeleton);
  skeleton.copy(*file);
  file_ = std::move(file);
}

void Hdf5Writer::make_skeleton(hdf5::Skeleton& skeleton) {
  const hdf5::Quiet quiet;
  const Checker check(path_);
  const Handle access = check(H5Pcreate(H5P_FILE_ACCESS), "settings");
  check.done(H5Pset_meta_block_size(access.get(), kSkeletonBlock), "settings");
  const Handle driver = skeleton.register_driver();
  skeleton.use(driver, access);
  Handle file = check(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), "start");
  for (const Named& a : attributes_) {
    if (a.object.empty()) write_attribute(file.get(), a.name, a.value, check);
  }
  for (Hdf5DataSet& data_set : data_sets_) {
    const Handle made = create_data_set(file.get(), data_set, check);
    for (const Named& a : attributes_) {
      if (a.object == data_set.name) write_attribute(made.get(), a.name, a.value, check);
    }
    data_set.offset = 0;
    if (data_set.bytes() == 0) continue;
    const haddr_t offset = H5Dget_offset(made.get());
    AB_CHECK(offset != HADDR_UNDEF, path_, ": ", data_set.name, " has no place in the file");
    data_set.offset = static_cast<int64_t>(offset);
  }
  if (!file.close()) throw io_error("cannot write ", path_, ": ", hdf5::last_error());
}

uint32_t Hdf5Writer::write(const std::string& name, const void* from, int64_t bytes,
                           int64_t first) {
  AB_CHECK(file_ != nullptr, path_, " is not laid out yet");
  const auto at = by_name_.find(name);
  AB_CHECK(at != by_name_.end(), path_, " has no data set ", name);
  const Hdf5DataSet& to = data_sets_[at->second];
  AB_CHECK(first >= 0 && bytes >= 0 && first <= to.bytes() && bytes <= to.bytes() - first, path_,
           ": bytes ", first, " to ", first + bytes, " are outside of ", name, ", which has ",
           to.bytes());
  file_->write(to.offset + first, from, static_cast<size_t>(bytes));
  return crc32c(from, static_cast<size_t>(bytes));
}

void Hdf5Writer::commit() {
  AB_CHECK(file_ != nullptr, path_, " is not laid out yet");
  file_->commit();
}

}  // namespace anabranch
