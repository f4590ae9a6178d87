// The loss of a bigram model: what a trained model has to beat.
#pragma once

#include <cstdint>
#include <span>

#include "data/shard/token_stream.h"

namespace anabranch {

struct BigramResult {
  double nats_per_token = 0;
  double bits_per_byte = 0;  // 0 without lengths of tokens
  int64_t tokens = 0;        // validation tokens that were predicted
  int64_t fitted_on = 0;     // training tokens
};

// Fits on `train`, evaluates every token of `val` but the first:
//
//   p(w | h) = max(c(h,w) - d, 0) / c(h) + d n(h) / c(h) p(w),   p(w) = (c(w) + 1) / (N + V)
//
// with d = 0.75, n(h) the number of different tokens seen after h, and p(w) alone after an h never
// seen. bits_per_byte is the sum over targets with bytes, as for a model's loss.
//
//   vocab_size        V; ids must be below it
//   token_bytes       [V] bytes of text by id, 0 for special tokens; may be empty
//   max_train_tokens  of which to fit, from the start; takes 8 bytes of memory each
//
// Throws data_error for ids outside of the vocabulary or splits of less than two tokens.
//
// Source: Ney, Essen, Kneser, "On structuring probabilistic dependences", 1994 (absolute
// discounting, interpolated).
BigramResult bigram(const TokenStream& train, const TokenStream& val, int64_t vocab_size,
                    std::span<const uint32_t> token_bytes,
                    int64_t max_train_tokens = int64_t{1} << 27U);

}  // namespace anabranch
