#include "data/hdf5/handle.h"

#include <hdf5.h>

namespace anabranch::hdf5 {

bool Handle::close() {
  if (id_ < 0) return true;
  const Id id = std::exchange(id_, -1);
  return H5Idec_ref(id) >= 0;
}

Quiet::Quiet() {
  H5E_auto2_t function = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &function, &data_);
  function_ = reinterpret_cast<void*>(function);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Quiet::~Quiet() { H5Eset_auto2(H5E_DEFAULT, reinterpret_cast<H5E_auto2_t>(function_), data_); }

std::string last_error() {
  std::string text;
  const auto first = [](unsigned depth, const H5E_error2_t* entry, void* to) -> herr_t {
    if (depth == 0 && entry->desc != nullptr) *static_cast<std::string*>(to) = entry->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first, &text);
  return text.empty() ? "unknown HDF5 error" : text;
}

}  // namespace anabranch::hdf5
