#include "core/ops/columns.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

// Bytes of rows, whatever their type: U is as large as all rows and places allow.
template <class U>
struct CopyRows {
  U* to;
  const U* from;  // null: 0
  int64_t to_row, from_row;

  template <int kN>
  __device__ void at(int64_t n, int64_t c) const {
    Pack<U, kN> bytes{};
    if (from != nullptr) bytes = load<kN>(from + n * from_row + c);
    store(to + n * to_row + c, bytes);
  }
};

template <class U>
struct WidenRows {
  U* to;
  const U* from;
  int64_t to_row, from_row, first;

  template <int kN>
  __device__ void at(int64_t n, int64_t c) const {
    Pack<U, kN> bytes{};
    if (c >= first && c < first + from_row) bytes = load<kN>(from + n * from_row + c - first);
    store(to + n * to_row + c, bytes);
  }
};

struct Bytes {
  std::byte* to;
  const std::byte* from;
  int64_t to_row, from_row, first;  // bytes
  int64_t rows, width;              // bytes of a row that are written
  CUstream_st* stream;
};

template <class U, bool kWiden>
void run(const Bytes& b, bool packs) {
  constexpr int64_t kSize = sizeof(U);
  U* to = reinterpret_cast<U*>(b.to);
  const U* from = reinterpret_cast<const U*>(b.from);
  const int64_t to_row = b.to_row / kSize, from_row = b.from_row / kSize, width = b.width / kSize;
  if constexpr (kWiden) {
    const WidenRows<U> k{to, from, to_row, from_row, b.first / kSize};
    each_row<kPack<U>>(k, b.rows, width, packs, b.stream);
  } else {
    const CopyRows<U> k{to, from, to_row, from_row};
    each_row<kPack<U>>(k, b.rows, width, packs, b.stream);
  }
}

template <bool kWiden>
void run(const Bytes& b) {
  const auto places = reinterpret_cast<uintptr_t>(b.to) | reinterpret_cast<uintptr_t>(b.from);
  const uint64_t all = places | static_cast<uint64_t>(b.to_row | b.from_row | b.first | b.width);
  if (all % 4 == 0) return run<uint32_t, kWiden>(b, all % 16 == 0);
  if (all % 2 == 0) return run<uint16_t, kWiden>(b, false);
  run<uint8_t, kWiden>(b, false);
}

int64_t row_bytes(const Tensor& t) { return t.dim(1) * size_of(t.dtype()); }

}  // namespace

void copy_columns(Tensor& part, const Tensor& whole, int64_t first) {
  const int64_t row = row_bytes(part);
  run<false>({part.raw(), whole.raw() + first * size_of(part.dtype()), row, row_bytes(whole), 0,
              part.dim(0), row, part.stream()});
}

void put_columns(Tensor& whole, const Tensor& part, int64_t k, int64_t parts) {
  const int64_t all = row_bytes(whole), row = all / parts;
  run<false>({whole.raw() + k * row, part.empty() ? nullptr : part.raw(), all, row, 0, whole.dim(0),
              row, whole.stream()});
}

void widen_columns(Tensor& whole, const Tensor& part, int64_t first) {
  const int64_t all = row_bytes(whole);
  run<true>({whole.raw(), part.raw(), all, row_bytes(part), first * size_of(part.dtype()),
             whole.dim(0), all, whole.stream()});
}

}  // namespace anabranch::cuda
