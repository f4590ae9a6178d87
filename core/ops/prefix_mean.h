// What a token knows of its sequence so far: a running mean, causal.
//
//   mean    c_t = sum_{f <= s <= t} v_s / (t - f + 1),   f the first token of t's document
//   ema     c_t = d c_{t-1} + (1 - d) v_t,   c_{f-1} = 0
//   global  c_t = mean over the whole sequence: sees the future, and exists to show that
//
// Source: the cMoLLM paper, section 4.5, with the mean over a prefix in place of the pooled one.
#pragma once

#include <span>

#include "core/autograd/tape.h"

namespace anabranch {

struct MeanForm {
  enum class Kind : uint8_t { kPrefix, kEma, kGlobal };
  Kind kind = Kind::kPrefix;
  double decay = 0.99;  // d
};

// The mean of each row's past.
//
//   v, c    [B*T, C]
//   batch   B
//   starts  [B, T] int32: the first token of each token's document; empty: 0. Not for global
//
// Sums are in the accumulator's type. Keeps starts. Throws Error if the shapes do not fit.
Var prefix_mean(const Var& v, int64_t batch, const MeanForm& form = {}, const Tensor& starts = {});

// What decoding keeps: of each sequence the running sum (or ema) and the tokens in it.
struct RunningMean {
  Tensor sums;                  // [B, C] in the accumulator's type
  std::vector<int64_t> counts;  // [B]

  RunningMean(const Tensor& beside, int64_t batch, int64_t width);
};

// The same for new tokens that follow those in `state`, which they join.
//
//   v           [B*S, C]  new tokens, padded at the right
//   new_tokens  [B]       how many of each sequence count; the others' c is whatever
//
// Throws Error for kGlobal: the future is not there.
Tensor prefix_mean_step(const Tensor& v, std::span<const int64_t> new_tokens, RunningMean& state,
                        const MeanForm& form = {});

namespace cpu {

void prefix_mean_forward(Tensor& c, const Tensor& v, int64_t batch, const MeanForm& form,
                         const Tensor& starts);
void prefix_mean_backward(GradSink& dv, const Tensor& dc, int64_t batch, const MeanForm& form,
                          const Tensor& starts);
void prefix_mean_step(Tensor& c, const Tensor& v, std::span<const int64_t> new_tokens,
                      RunningMean& state, const MeanForm& form);

}  // namespace cpu

namespace cuda {

void prefix_mean_forward(Tensor& c, const Tensor& v, int64_t batch, const MeanForm& form,
                         const Tensor& starts);
void prefix_mean_backward(GradSink& dv, const Tensor& dc, int64_t batch, const MeanForm& form,
                          const Tensor& starts);
void prefix_mean_step(Tensor& c, const Tensor& v, std::span<const int64_t> new_tokens,
                      RunningMean& state, const MeanForm& form);

}  // namespace cuda
}  // namespace anabranch
