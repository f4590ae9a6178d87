#include "core/ops/cached_attention.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void check_cache(const Tensor& qkv, const KvCache& cache, int64_t heads) {
  const Shape& shape = cache.keys.shape();
  AB_CHECK(shape.rank() == 3 && cache.values.shape() == shape, "[cached_attention] keys are ",
           shape, " and values ", cache.values.shape(), "; both must be [B, T_max, C]");
  AB_CHECK(std::ssize(cache.lengths) == shape[0], "[cached_attention] the cache has ", shape[0],
           " sequences but ", cache.lengths.size(), " lengths");
  AB_CHECK(cache.keys.dtype() == qkv.dtype() && cache.values.dtype() == qkv.dtype(),
           "[cached_attention] qkv is ", name_of(qkv.dtype()), " but the cache holds ",
           name_of(cache.keys.dtype()), " keys and ", name_of(cache.values.dtype()), " values");
  AB_CHECK(heads > 0 && shape[2] % heads == 0, "[cached_attention] the cache has ", shape[2],
           " channels, not a multiple of ", heads, " heads");
  AB_CHECK(qkv.shape().rank() == 2 && shape[0] > 0 && qkv.dim(0) % shape[0] == 0 &&
               qkv.dim(1) == 3 * shape[2],
           "[cached_attention] qkv is ", qkv.shape(), " but needs [B*S, 3C] with B ", shape[0],
           " and C ", shape[2]);
}

void check_counts(const KvCache& cache, std::span<const int64_t> counts, int64_t rows) {
  AB_CHECK(counts.size() == cache.lengths.size(), "[cached_attention] new_tokens has ",
           counts.size(), " entries for ", cache.lengths.size(), " sequences");
  const int64_t capacity = cache.keys.dim(1);
  for (size_t b = 0; b < counts.size(); ++b) {
    AB_CHECK(0 <= counts[b] && counts[b] <= rows, "[cached_attention] sequence ", b, " has ",
             counts[b], " new tokens but qkv holds ", rows, " rows a sequence");
    AB_CHECK(cache.lengths[b] + counts[b] <= capacity,
             "[cached_attention] the cache is full: ", "sequence ", b, " holds ", cache.lengths[b],
             " tokens and gets ", counts[b], " more, but has room for ", capacity);
  }
}

void attend(Tensor& y, const Tensor& qkv, KvCache& cache, int64_t heads,
            std::span<const int64_t> counts) {
  if (qkv.device().is_cpu()) return cpu::cached_attention(y, qkv, cache, heads, counts);
  if constexpr (build::kCuda) return cuda::cached_attention(y, qkv, cache, heads, counts);
  AB_FAIL("[cached_attention] no kernel for this device in this build");
}

}  // namespace

KvCache make_kv_cache(const Tensor& beside, int64_t batch, int64_t capacity, int64_t channels) {
  const Shape shape{batch, capacity, channels};
  return {beside.like(shape, beside.dtype(), "kv cache"),
          beside.like(shape, beside.dtype(), "kv cache"),
          std::vector<int64_t>(static_cast<size_t>(batch), 0)};
}

Tensor cached_attention(const Tensor& qkv, KvCache& cache, int64_t heads,
                        std::span<const int64_t> new_tokens) {
  check_cache(qkv, cache, heads);
  const int64_t rows = qkv.dim(0) / cache.keys.dim(0);
  std::vector<int64_t> counts(new_tokens.begin(), new_tokens.end());
  if (counts.empty()) counts.assign(cache.lengths.size(), rows);
  check_counts(cache, counts, rows);
  Tensor y = qkv.like({qkv.dim(0), cache.keys.dim(2)}, qkv.dtype(), "cached_attention");
  attend(y, qkv, cache, heads, counts);
  for (size_t b = 0; b < counts.size(); ++b) cache.lengths[b] += counts[b];
  return y;
}

}  // namespace anabranch
