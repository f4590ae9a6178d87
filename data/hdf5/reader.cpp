#include <utility>

#include "core/base/error.h"
#include "data/hdf5/file.h"
#include "data/hdf5/parser.h"

namespace anabranch {

Hdf5Reader::Hdf5Reader(const std::string& path) : file_(path) {
  if (file_.size() == 0) throw data_error(path, " is empty; expected an HDF5 file");
  hdf5::Parser(file_, data_sets_, attributes_).run();
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
