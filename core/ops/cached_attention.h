// Causal attention of new tokens to those before them, whose keys and values are kept: inference
// one token, or one prompt, at a time. The equations are those of attention.h.
#pragma once

#include <span>
#include <vector>

#include "core/tensor/tensor.h"

namespace anabranch {

// The keys and values of one layer, for B sequences of up to T_max tokens each.
struct KvCache {
  Tensor keys, values;           // [B, T_max, C], of the type of the activations
  std::vector<int64_t> lengths;  // [B] tokens held
};

// An empty cache for activations that live beside `beside` and have its type.
//
//   batch     B, sequences
//   capacity  T_max, tokens that a sequence can reach
//   channels  C
[[nodiscard]] KvCache make_kv_cache(const Tensor& beside, int64_t batch, int64_t capacity,
                                    int64_t channels);

// Appends the keys and values of the new tokens to each sequence of `cache`, advances its lengths,
// and attends from each new token to itself and all before it.
//
//   qkv         [B*S, 3C]  queries, keys and values of S new tokens of each sequence, as attention
//   heads                  H, with D = C / H
//   new_tokens  [B]        how many of the S rows of each sequence are tokens, from the first; the
//                          rest is padding, read by nothing. Empty: all
//   result      [B*S, C]   0 in the rows of padding
//
// Throws Error, and leaves the cache as it was, if shapes do not fit or a sequence would exceed
// T_max.
Tensor cached_attention(const Tensor& qkv, KvCache& cache, int64_t heads,
                        std::span<const int64_t> new_tokens = {});

namespace cpu {

// `counts` [B] new tokens a sequence; `lengths` of the cache are those before them.
void cached_attention(Tensor& y, const Tensor& qkv, KvCache& cache, int64_t heads,
                      std::span<const int64_t> counts);

}  // namespace cpu

namespace cuda {

void cached_attention(Tensor& y, const Tensor& qkv, KvCache& cache, int64_t heads,
                      std::span<const int64_t> counts);

}  // namespace cuda
}  // namespace anabranch
