// How far a computed value may be from the right one: the one table of the tests.
#pragma once

#include "core/tensor/dtype.h"

namespace anabranch::test {

struct Tolerance {
  double relative;  // of the magnitude of the expected value
  double absolute;
};

// An op's output or gradient against a float64 reference: rounding of the type, times the length
// of the sums involved.
inline Tolerance op_tolerance(DType type) {
  switch (type) {
    case DType::kF64:
      return {1e-11, 1e-12};
    case DType::kBF16:
      return {2e-2, 2e-2};
    default:
      return {2e-5, 2e-5};
  }
}

inline constexpr Tolerance kGradCheck{1e-6, 1e-8};  // float64 against finite differences
inline constexpr Tolerance kModelF64{1e-9, 1e-12};  // whole models in float64 against PyTorch
inline constexpr Tolerance kModelF32{1e-5, 1e-6};   // whole models in float32 against float64
inline constexpr Tolerance kStepsF64{1e-8, 1e-12};  // weights after some steps, against PyTorch
inline constexpr Tolerance kLayouts{1e-5, 0};       // losses on N ranks against one rank
inline constexpr Tolerance kLayoutsF64{1e-9, 0};    // the same in float64
inline constexpr Tolerance kDevices{1e-5, 0};       // losses of a run on a GPU against a CPU's
inline constexpr Tolerance kDevicesBf16{1e-2, 0};  // the same in bf16, which both round as they sum
inline constexpr Tolerance kVecMath{2.5e-7, 0};   // float32 exp, tanh, erf, sigmoid against float64
inline constexpr Tolerance kSixDigits{0, 1e-6};   // values near 1 that are written with six digits
inline constexpr Tolerance kOrthogonal{0, 1e-9};  // U^T U - I in float64
// |got - want| / |want| of matrices after polar's iterations, against float64.
inline constexpr Tolerance kPolarF32{2e-5, 0};
inline constexpr Tolerance kPolarBf16{3e-2, 0};
// Bytes that are planned against those that the allocator hands out.
inline constexpr Tolerance kPlannedMemory{5e-2, 0};
inline constexpr Tolerance kPlannedWeights{1e-3, 0};
inline constexpr Tolerance kStatistics{0, 1e-9};  // quantiles and intervals against scipy
inline constexpr Tolerance kFits{0, 1e-5};        // constants of a law against those planted
inline constexpr Tolerance kExact{0, 0};

}  // namespace anabranch::test
