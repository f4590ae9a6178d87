#include "data/hdf5/skeleton.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include <hdf5.h>

namespace anabranch::hdf5 {
namespace {

// What the library passes to a driver's functions; the public part comes first.
struct DriverFile {
  H5FD_t common;
  Skeleton* skeleton;
  haddr_t allocated;
};

DriverFile* of(H5FD_t* file) { return reinterpret_cast<DriverFile*>(file); }

const DriverFile* of(const H5FD_t* file) { return reinterpret_cast<const DriverFile*>(file); }

H5FD_t* open_file(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*most*/) {
  const auto* skeleton = static_cast<Skeleton* const*>(H5Pget_driver_info(access));
  auto file = std::make_unique<DriverFile>();
  file->skeleton = *skeleton;
  return &file.release()->common;
}

herr_t close_file(H5FD_t* file) {
  delete of(file);
  return 0;
}

herr_t query(const H5FD_t* /*file*/, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
           H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t /*kind*/) { return of(file)->allocated; }

herr_t set_allocated(H5FD_t* file, H5FD_mem_t /*kind*/, haddr_t to) {
  of(file)->allocated = to;
  return 0;
}

haddr_t get_end(const H5FD_t* file, H5FD_mem_t /*kind*/) {
  return static_cast<haddr_t>(of(file)->skeleton->size());
}

herr_t read_part(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*list*/, haddr_t at, size_t bytes,
                 void* to) {
  of(file)->skeleton->read(at, to, bytes);
  return 0;
}

herr_t write_part(H5FD_t* file, H5FD_mem_t /*kind*/, hid_t /*list*/, haddr_t at, size_t bytes,
                  const void* from) {
  try {
    of(file)->skeleton->write(at, from, bytes);
  } catch (const std::bad_alloc&) {
    return -1;  // called by C code, which no exception may cross
  }
  return 0;
}

herr_t truncate(H5FD_t* file, hid_t /*list*/, hbool_t /*closing*/) {
  of(file)->skeleton->set_size(of(file)->allocated);
  return 0;
}

}  // namespace

Handle Skeleton::register_driver() const {
  H5FD_class_t driver{};
  driver.name = "anabranch skeleton";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(Skeleton*);
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query;
  driver.get_eoa = get_allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = get_end;
  driver.read = read_part;
  driver.write = write_part;
  driver.truncate = truncate;
  const H5FD_mem_t free_lists[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(free_lists), std::end(free_lists), std::begin(driver.fl_map));
  return Handle(H5FDregister(&driver));
}

void Skeleton::use(const Handle& driver, const Handle& access) {
  Skeleton* self = this;
  H5Pset_driver(access.get(), driver.get(), static_cast<const void*>(&self));
}

void Skeleton::read(uint64_t at, void* to, size_t bytes) const {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const uint64_t inside = at % kPage;
    const size_t part = std::min<size_t>(bytes, kPage - inside);
    const auto page = pages_.find(at / kPage);
    if (page == pages_.end()) {
      std::memset(out, 0, part);
    } else {
      std::memcpy(out, page->second.data() + inside, part);
    }
    out += part;
    at += part;
    bytes -= part;
  }
}

void Skeleton::write(uint64_t at, const void* from, size_t bytes) {
  const auto* in = static_cast<const char*>(from);
  size_ = std::max(size_, at + bytes);
  while (bytes > 0) {
    const uint64_t inside = at % kPage;
    const size_t part = std::min<size_t>(bytes, kPage - inside);
    std::memcpy(pages_[at / kPage].data() + inside, in, part);
    in += part;
    at += part;
    bytes -= part;
  }
}

void Skeleton::copy(AtomicFile& to) const {
  to.resize(size());
  for (const auto& [number, page] : pages_) {
    const uint64_t begin = number * kPage;
    if (begin >= size_) continue;
    to.write(static_cast<int64_t>(begin), page.data(), std::min<size_t>(kPage, size_ - begin));
  }
}

}  // namespace anabranch::hdf5
