// Expert choice in a pool whose rows lie in several parts: each part looks at its own scores, and
// all add up what they count.
//
//   RadixSelect of = radix_select(scores, k);                   of this part
//   for each digit of a key, the highest first:
//     Tensor counts = digit_counts(of, digit);                  adds those of the other parts
//     take_digit(of, digit, counts);
//   SlotPlan plan = slots_taken(of, before, order);             before: kth_ties of earlier parts
//
// A score's key (sort_key.h) has the order of the scores. An expert's k-th largest key is found one
// digit after the other: the parts count their keys that begin as the k-th does by the next digit;
// from the largest on, the one with which the counts reach the k-th's place is its. In the end all
// is as expert_choice() would find among all rows, whatever the ties.
//
// On a GPU the host learns nothing of what was found: the groups of the plan are on the device, and
// it has as many slots as there can be.
#pragma once

#include "core/ops/expert_choice.h"

namespace anabranch {

inline constexpr int kMostDigitBits = 12;  // the counts of a warp are in shared memory

// Some bits of a key.
struct KeyDigit {
  int low, bits;

  // What the digit of `key` is, or -1 if the digits above are not those of `kth`. For kernels too.
  template <class Key>
  [[nodiscard]] constexpr int of(Key key, Key kth) const {
    if (((key ^ kth) >> low) >> bits != 0) return -1;
    return static_cast<int>((key >> low) & ((Key{1} << bits) - 1));
  }
};

struct RadixSelect {
  DType scores = DType::kF32;  // their type
  int64_t k = 0;
  Tensor keys;   // [E, M] of the part's scores: int32 or int64, of whose bits they are
  Tensor kth;    // [E] of the same: the digits of the k-th that are known, and 0 in the others
  Tensor place;  // [E] int64: of the k-th among the pool's keys that begin so, from 1
};

// Begins a search for the k-th largest scores of a pool, of which `scores` is a part.
//
//   scores  [M, E]  float32 or float64
//   k               from 1 on; of an expert
//
// Throws Error if these do not fit.
RadixSelect radix_select(const Tensor& scores, int64_t k);

// [E, 2^bits] int64: of the part's keys that begin as the k-th does, how many have each value of
// `digit`, which is the next. The digit {0, 0} counts, when all are known, those equal to the k-th.
[[nodiscard]] Tensor digit_counts(const RadixSelect& of, const KeyDigit& digit);

// Adds the digit to what is known, given the counts of all parts.
void take_digit(RadixSelect& of, const KeyDigit& digit, const Tensor& counts);

// The rest is for when all digits are known.

// [1, E] of the scores' type: the k-th largest, as expert_choice() gives it.
[[nodiscard]] Tensor kth_scores(const RadixSelect& of);

// The slots of the part's rows: of scores larger than the k-th, and of those equal to it the first,
// as far as the parts before leave places.
//
//   before  [1, E] int64: how many equal to the k-th the parts before have
[[nodiscard]] SlotPlan slots_taken(const RadixSelect& of, const Tensor& before, SlotOrder order);

namespace cpu {

// All of `select` but k and the types.
void begin_select(RadixSelect& select, const Tensor& scores);
void digit_counts(Tensor& counts, const RadixSelect& of, const KeyDigit& digit);
void take_digit(RadixSelect& of, const KeyDigit& digit, const Tensor& counts);
void kth_scores(Tensor& scores, const RadixSelect& of);
SlotPlan slots_taken(const RadixSelect& of, const Tensor& before, SlotOrder order);

}  // namespace cpu

namespace cuda {

void begin_select(RadixSelect& select, const Tensor& scores);
void digit_counts(Tensor& counts, const RadixSelect& of, const KeyDigit& digit);
void take_digit(RadixSelect& of, const KeyDigit& digit, const Tensor& counts);
void kth_scores(Tensor& scores, const RadixSelect& of);
SlotPlan slots_taken(const RadixSelect& of, const Tensor& before, SlotOrder order);

}  // namespace cuda
}  // namespace anabranch
