// That decoding from caches gives what whole sequences give.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/models/model.h"
#include "tests/support/tensors.h"

namespace anabranch::test {

// Sequences that go on from others' states, all but the first two tokens at once.
inline void expect_branches_equal_logits(Model& model, const Tensor& ids, Tolerance tolerance) {
  const int64_t B = ids.dim(0), T = ids.dim(1), V = model.vocabulary();
  if (T < 4) return;
  const std::vector<double> whole = values(model.logits(ids));
  const auto part = [&](const std::vector<int64_t>& sequences, int64_t from, int64_t tokens) {
    Tensor some({std::ssize(sequences), tokens}, DType::kI32);
    for (size_t i = 0; i < sequences.size(); ++i) {
      std::copy_n(ids.data<int32_t>() + sequences[i] * T + from, tokens,
                  some.data<int32_t>() + static_cast<int64_t>(i) * tokens);
    }
    return some;
  };
  std::vector<int64_t> all(static_cast<size_t>(B));
  std::iota(all.begin(), all.end(), int64_t{0});
  DecodeState state = model.decode_state(B, T);
  (void)model.decode(part(all, 0, 2), std::vector<int64_t>(all.size(), 2), state);
  const std::vector<int64_t> from = {B - 1, 0, B - 1};
  DecodeState next = branched(state, from);
  const Tensor hidden =
      model.decode_hidden(part(from, 2, T - 2), std::vector<int64_t>(from.size(), T - 2), next);
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t rows = T - 2;
    const Tensor x =
        hidden.view(static_cast<int64_t>(i) * rows * hidden.dim(1), {rows, hidden.dim(1)});
    const auto first = whole.begin() + (from[i] * T + 2) * V;
    expect_near(model.head().logits(x), {first, first + rows * V}, tolerance, join("branch ", i));
  }
}

// Greedy tokens by decode(), and the logits it gives, equal those of whole sequences.
inline void expect_decode_equals_logits(Model& model, const Tensor& ids, Tolerance tolerance) {
  const int64_t B = ids.dim(0), T = ids.dim(1), V = model.vocabulary();
  const std::vector<double> whole = values(model.logits(ids));
  DecodeState state = model.decode_state(B, T);
  for (int64_t t = 0; t < T;) {
    const int64_t n = t == 0 ? std::min<int64_t>(3, T) : 1;  // a prompt, then one by one
    Tensor next({B, n}, DType::kI32);
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t i = 0; i < n; ++i) {
        next.data<int32_t>()[b * n + i] = ids.data<int32_t>()[b * T + t + i];
      }
    }
    t += n;
    const std::vector<int64_t> counts(static_cast<size_t>(B), n);
    const Tensor got = model.decode(next, counts, state);
    for (int64_t b = 0; b < B; ++b) {
      const auto first = whole.begin() + (b * T + t - 1) * V;
      expect_near(got.view(b * V, {V}), {first, first + V}, tolerance, join("token ", t));
    }
  }
  expect_branches_equal_logits(model, ids, tolerance);
}

}  // namespace anabranch::test
