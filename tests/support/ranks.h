// Tensors for tests with several ranks: small whole numbers, so that sums are exact in every type
// and order and compare with ==.
#pragma once

#include <gtest/gtest.h>

#include "core/tensor/tensor.h"

namespace anabranch::test {

// A small whole number that differs between ranks and elements.
inline int64_t exact_number(int rank, int64_t i) { return (i * 7 + rank * 5) % 11 - 4; }

// Calls f.template operator()<T>() with the C++ type of any type that ranks can sum.
template <class F>
void dispatch_sums(DType type, F&& f) {
  if (type == DType::kI64) return f.template operator()<int64_t>();
  dispatch(type, std::forward<F>(f));
}

template <class T>
T from_number(int64_t n) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return Bf16(static_cast<float>(n));
  } else {
    return static_cast<T>(n);
  }
}

// Element i is `number(i)`.
template <class F>
Tensor numbers(Shape shape, DType type, const F& number) {
  Tensor t(shape, type);
  dispatch_sums(type, [&]<class T>() {
    for (int64_t i = 0; i < t.count(); ++i) t.data<T>()[i] = from_number<T>(number(i));
  });
  return t;
}

inline Tensor exact(Shape shape, DType type, int rank) {
  return numbers(shape, type, [&](int64_t i) { return exact_number(rank, i); });
}

// `got_there` may be on a GPU.
inline void expect_equal(const Tensor& got_there, const Tensor& want, const std::string& what) {
  const Tensor got = got_there.device().is_cpu() ? got_there : got_there.copy_in(nullptr);
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  ASSERT_EQ(got.count(), want.count()) << what;
  dispatch_sums(got.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < got.count(); ++i) {
      if (got.data<T>()[i] == want.data<T>()[i]) continue;
      FAIL() << what << " differs at element " << i << " of " << got.count();
    }
  });
}

}  // namespace anabranch::test
