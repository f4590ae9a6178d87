#include <algorithm>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/base/philox.h"
#include "core/ops/dropout.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kBlocks = 128;         // Philox blocks made at a time
constexpr int64_t kWords = 4 * kBlocks;  // elements they serve
constexpr int64_t kGrain = 32 * kWords;

template <class T>
struct Span {
  T* y;
  const T* x;
  int64_t n;
  uint64_t first;  // index of x[0] among the elements of the whole batch
  uint64_t key;
  uint32_t threshold;
  Accumulator<T> scale;
};

// philox() of core/base for a run of counters: the same rounds, a loop over blocks inside each.
[[gnu::always_inline]] inline void fill_words(uint32_t* words, uint64_t key, uint64_t counter) {
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks] = {}, c3[kBlocks] = {};
  for (int64_t j = 0; j < kBlocks; ++j) {
    const uint64_t at = counter + static_cast<uint64_t>(j);
    c0[j] = static_cast<uint32_t>(at);
    c1[j] = static_cast<uint32_t>(at >> 32U);
  }
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    for (int64_t j = 0; j < kBlocks; ++j) {
      const uint64_t p0 = uint64_t{0xD2511F53U} * c0[j], p1 = uint64_t{0xCD9E8D57U} * c2[j];
      c0[j] = static_cast<uint32_t>(p1 >> 32U) ^ c1[j] ^ k0;
      c2[j] = static_cast<uint32_t>(p0 >> 32U) ^ c3[j] ^ k1;
      c1[j] = static_cast<uint32_t>(p1);
      c3[j] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (int64_t j = 0; j < kBlocks; ++j) {
    words[4 * j] = c0[j];
    words[4 * j + 1] = c1[j];
    words[4 * j + 2] = c2[j];
    words[4 * j + 3] = c3[j];
  }
}

template <class T>
[[gnu::always_inline]] inline void apply_mask(Span<T> s) {
  using A = Accumulator<T>;
  uint32_t words[kWords];
  for (int64_t done = 0; done < s.n;) {
    const uint64_t first = s.first + static_cast<uint64_t>(done);
    const auto skip = static_cast<int64_t>(first % 4);
    const int64_t count = std::min(kWords - skip, s.n - done);
    fill_words(words, s.key, first / 4);
    const uint32_t* word = words + skip;
    T* y = s.y + done;
    const T* x = s.x + done;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      const A scaled = A(x[i]) * s.scale;
      y[i] = T(word[i] >= s.threshold ? scaled : A(0));
    }
    done += count;
  }
}

AB_CLONES void run(Span<float> s) { apply_mask(s); }

AB_CLONES void run(Span<Bf16> s) { apply_mask(s); }

AB_CLONES void run(Span<double> s) { apply_mask(s); }

}  // namespace

void dropout(Tensor& y, const Tensor& x, double rate, DropoutKey key) {
  const auto threshold = static_cast<uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1));
  const auto first = static_cast<uint64_t>(key.first_row * x.dim(-1));
  dispatch(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = y.data<T>();
    const T* from = x.data<T>();
    const A scale = static_cast<A>(1 / (1 - rate));
    parallel_for(x.count(), kGrain, [=](int64_t begin, int64_t end) {
      run(Span<T>{to + begin, from + begin, end - begin, first + static_cast<uint64_t>(begin),
                  key.key, threshold, scale});
    });
  });
}

}  // namespace anabranch::cpu
