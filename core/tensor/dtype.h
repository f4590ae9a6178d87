// Element types, and the trip from a run-time type to a template argument.
#pragma once

#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/bf16.h"

namespace anabranch {

enum class DType : uint8_t { kF32, kBF16, kF64, kI32, kI64, kU8 };

[[nodiscard]] constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

[[nodiscard]] constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF64:
      return "float64";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kU8:
      return "uint8";
  }
  return "?";
}

template <class T>
struct DTypeOf;

template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};

template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};

template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::kBF16;
};

template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};

template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};

template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

template <class T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

// What sums over elements of T are kept in: float for bf16 and float, double for double.
template <class T>
struct AccumulatorOf {
  using type = float;
};

template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

// The type that statistics, gradients of weights and master weights have beside elements of `type`.
[[nodiscard]] constexpr DType accumulator_of(DType type) {
  return type == DType::kF64 ? DType::kF64 : DType::kF32;
}

// Calls f.template operator()<T>() with the C++ type of a floating `type`:
//   dispatch(x.dtype(), [&]<class T>() { kernel<T>(x); });
template <class F>
decltype(auto) dispatch(DType type, F&& f) {
  switch (type) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kBF16:
      return f.template operator()<Bf16>();
    case DType::kF64:
      return f.template operator()<double>();
    default:
      AB_FAIL("no arithmetic on ", name_of(type), "; expected float32, bfloat16 or float64");
  }
}

}  // namespace anabranch
