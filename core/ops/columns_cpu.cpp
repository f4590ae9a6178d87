#include <cstring>

#include "core/base/parallel_for.h"
#include "core/ops/columns.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kGrain = 64;  // rows

}  // namespace

void copy_columns(Tensor& part, const Tensor& whole, int64_t first) {
  const int64_t row = part.dim(1) * size_of(part.dtype()),
                all = whole.dim(1) * size_of(part.dtype());
  std::byte* to = part.raw();
  const std::byte* from = whole.raw() + first * size_of(part.dtype());
  parallel_for(part.dim(0), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      std::memcpy(to + n * row, from + n * all, static_cast<size_t>(row));
    }
  });
}

void put_columns(Tensor& whole, const Tensor& part, int64_t k, int64_t parts) {
  const int64_t all = whole.dim(1) * size_of(whole.dtype()), row = all / parts;
  std::byte* to = whole.raw() + k * row;
  const std::byte* from = part.empty() ? nullptr : part.raw();
  parallel_for(whole.dim(0), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (from == nullptr) {
        std::memset(to + n * all, 0, static_cast<size_t>(row));
      } else {
        std::memcpy(to + n * all, from + n * row, static_cast<size_t>(row));
      }
    }
  });
}

void widen_columns(Tensor& whole, const Tensor& part, int64_t first) {
  const int64_t all = whole.dim(1) * size_of(whole.dtype()),
                row = part.dim(1) * size_of(part.dtype()), before = first * size_of(part.dtype());
  std::byte* to = whole.raw();
  const std::byte* from = part.raw();
  parallel_for(part.dim(0), kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      std::memset(to + n * all, 0, static_cast<size_t>(before));
      std::memcpy(to + n * all + before, from + n * row, static_cast<size_t>(row));
      std::memset(to + n * all + before + row, 0, static_cast<size_t>(all - before - row));
    }
  });
}

}  // namespace anabranch::cpu
