// The two ends that most language models share: where token ids come in and where logits go out.
#pragma once

#include <limits>
#include <span>

#include "core/autograd/tape.h"

namespace anabranch {

// The logits x E^T of final hidden states, in fp32 (float64), and their losses. With a cap they are
// cap * tanh(x E^T / cap).
class Head {
 public:
  // Keeps a reference: E [V, C], which may be the input's table too.
  explicit Head(Param& table, double softcap = 0) : table_(table), softcap_(softcap) {}

  // scale * (sum over the targets of their negative log-likelihood in nats).
  //
  //   x        [N, C]
  //   targets  N of int32 in any shape; -1 is not counted
  [[nodiscard]] Var loss(const Var& x, const Tensor& targets, double scale) const;

  // Each target's own [N].
  [[nodiscard]] Tensor losses(const Tensor& x, const Tensor& targets) const;

  // [N, V]
  [[nodiscard]] Tensor logits(const Tensor& x) const;

 private:
  Param& table_;
  double softcap_;
};

// Some rows of x [N, C], as [R, C].
Tensor chosen_rows(const Tensor& x, std::span<const int64_t> rows);

// ids [B, T] as [B * T].
Tensor flat(const Tensor& ids);

// first[b] + t for each of B sequences of T tokens, as [B * T] int32 beside `ids`; without `first`
// from 0. At most `last`: where padding lies beyond, any place will do.
Tensor positions_from(const Tensor& ids, std::span<const int64_t> first = {},
                      int64_t last = std::numeric_limits<int32_t>::max());

}  // namespace anabranch
