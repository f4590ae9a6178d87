#include "core/ops/radix_select.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

constexpr const char* kNoKernel = "[radix_select] no kernel for this device in this build";

void check_counts(const RadixSelect& of, const Tensor& counts, int64_t width) {
  const int64_t E = of.keys.dim(0);
  AB_CHECK(counts.dtype() == DType::kI64 && counts.count() == E * width &&
               counts.device() == of.keys.device(),
           "[radix_select] the counts are ", name_of(counts.dtype()), counts.shape(),
           " but need int64[", E, ", ", width, "] beside the scores");
}

void check_digit(const RadixSelect& of, const KeyDigit& digit) {
  AB_CHECK(digit.low >= 0 && 0 <= digit.bits && digit.bits <= kMostDigitBits &&
               digit.low + digit.bits <= 8 * size_of(of.scores),
           "[radix_select] a digit of ", digit.bits, " bits from ", digit.low, " on; of ",
           name_of(of.scores), ", and of at most ", kMostDigitBits, " bits");
}

}  // namespace

RadixSelect radix_select(const Tensor& scores, int64_t k) {
  AB_CHECK(scores.shape().rank() == 2 && scores.dim(1) > 0 &&
               scores.dtype() == accumulator_of(scores.dtype()) && scores.count() <= INT32_MAX,
           "[radix_select] the scores are ", name_of(scores.dtype()), scores.shape(),
           " but need [rows, experts] of float32 or float64, at most 2^31 - 1 of them");
  AB_CHECK(k >= 1, "[radix_select] the ", k, "-th largest; counted from 1");
  const DType keys = scores.dtype() == DType::kF32 ? DType::kI32 : DType::kI64;
  const int64_t M = scores.dim(0), E = scores.dim(1);
  RadixSelect select{scores.dtype(), k, scores.like({E, M}, keys, "radix_select.keys"),
                     scores.like({E}, keys, "radix_select.kth"),
                     scores.like({E}, DType::kI64, "radix_select.place")};
  if (scores.device().is_cpu()) {
    cpu::begin_select(select, scores);
    return select;
  }
  if constexpr (build::kCuda) {
    cuda::begin_select(select, scores);
    return select;
  }
  AB_FAIL(kNoKernel);
}

Tensor digit_counts(const RadixSelect& of, const KeyDigit& digit) {
  check_digit(of, digit);
  Tensor counts =
      of.keys.like({of.keys.dim(0), int64_t{1} << digit.bits}, DType::kI64, "radix_select.counts");
  if (of.keys.device().is_cpu()) {
    cpu::digit_counts(counts, of, digit);
    return counts;
  }
  if constexpr (build::kCuda) {
    cuda::digit_counts(counts, of, digit);
    return counts;
  }
  AB_FAIL(kNoKernel);
}

void take_digit(RadixSelect& of, const KeyDigit& digit, const Tensor& counts) {
  check_digit(of, digit);
  check_counts(of, counts, int64_t{1} << digit.bits);
  if (of.keys.device().is_cpu()) return cpu::take_digit(of, digit, counts);
  if constexpr (build::kCuda) return cuda::take_digit(of, digit, counts);
  AB_FAIL(kNoKernel);
}

Tensor kth_scores(const RadixSelect& of) {
  Tensor scores = of.keys.like({1, of.keys.dim(0)}, of.scores, "radix_select.kth_scores");
  if (of.keys.device().is_cpu()) {
    cpu::kth_scores(scores, of);
    return scores;
  }
  if constexpr (build::kCuda) {
    cuda::kth_scores(scores, of);
    return scores;
  }
  AB_FAIL(kNoKernel);
}

SlotPlan slots_taken(const RadixSelect& of, const Tensor& before, SlotOrder order) {
  check_counts(of, before, 1);
  if (of.keys.device().is_cpu()) return cpu::slots_taken(of, before, order);
  if constexpr (build::kCuda) return cuda::slots_taken(of, before, order);
  AB_FAIL(kNoKernel);
}

}  // namespace anabranch
