#include <algorithm>
#include <cmath>

#include "core/ops/prefix_mean.h"
#include "core/tensor/pack.cuh"

// A sequence is cut into chunks of tokens that threads walk at the same time, twice: for the sum of
// each chunk, and, once these are added up in order, for the values. The second time the rows come
// from the cache as far as it holds them. A backward walks from the end.
namespace anabranch::cuda {
namespace {

using Kind = MeanForm::Kind;

constexpr int kThreads = 128;
constexpr int64_t kChunk = 64;  // tokens
constexpr int kAhead = 8;       // tokens, or sums of chunks, that are read before they are needed

template <class T>
struct Walk {
  using A = Accumulator<T>;
  T* to;
  const T* from;
  const int32_t* starts;  // null: a document is a sequence
  A* sums;                // [B, chunks, C]: of each chunk, and then of all before it
  int32_t* restarts;      // [B, chunks]: whether a document begins in it
  int64_t batch, tokens, width, chunks;
  A kept, added;  // of the old sum, of the new row
  A kept_chunk;   // of the sum before a whole chunk
  bool ema, global, backward, accumulate;

  // The row of the u-th token of a walk, in its sequence.
  [[nodiscard]] __device__ int64_t token(int64_t u) const { return backward ? tokens - 1 - u : u; }

  // 1 / the tokens that the sum of one is made of.
  [[nodiscard]] __device__ A share(int64_t t, int64_t first) const {
    return ema ? A(1) : A(1) / static_cast<A>(global ? tokens : t - first + 1);
  }
};

// One chunk of one sequence, kN channels of it.
struct Place {
  int64_t sequence, chunk, column;
  bool there;
};

template <int kN, class T>
__device__ __forceinline__ Place place(const Walk<T>& k) {
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kN;
  return {blockIdx.x / k.chunks, blockIdx.x % k.chunks, column, column < k.width};
}

// What is read for one token.
template <class T, int kN>
struct Token {
  Pack<T, kN> x, y;  // y: what the result is added to
  int64_t first;
};

// Walks a chunk from what came before it, `sums`, on; kWrite: writes the results. Gives whether a
// document begins in it.
template <bool kWrite, class T, int kN>
__device__ __forceinline__ bool walk(const Walk<T>& k, const Place& at,
                                     Accumulator<T> (&sums)[kN]) {
  using A = Accumulator<T>;
  const int64_t begin = at.chunk * kChunk;
  const int64_t end = begin + kChunk < k.tokens ? begin + kChunk : k.tokens;
  const auto offset = [&](int64_t t) { return (at.sequence * k.tokens + t) * k.width + at.column; };
  bool restarts = false;
  for (int64_t group = begin; group < end; group += kAhead) {
    Token<T, kN> tokens[kAhead];
    for (int n = 0; n < kAhead; ++n) {
      if (group + n >= end) continue;
      const int64_t t = k.token(group + n);
      tokens[n].first = k.starts != nullptr ? k.starts[at.sequence * k.tokens + t] : 0;
      tokens[n].x = load<kN>(k.from + offset(t));
      if (kWrite && k.accumulate) tokens[n].y = load<kN>(k.to + offset(t));
    }
    for (int n = 0; n < kAhead; ++n) {
      if (group + n >= end) continue;
      const int64_t t = k.token(group + n);
      const Token<T, kN>& token = tokens[n];
      const bool restart = token.first == t && !k.global;
      restarts = restarts || restart;
      const A share = k.share(t, token.first);
      const A in = k.backward && !k.global ? share : k.added;
      const A out = k.backward && !k.global ? k.added : share;
      for (int j = 0; j < kN; ++j) {
        if (restart && !k.backward) sums[j] = 0;
        if (!kWrite || !k.global) sums[j] = k.kept * sums[j] + in * wide(token.x.v[j]);
      }
      if constexpr (kWrite) {
        Pack<T, kN> y;
        for (int j = 0; j < kN; ++j) {
          const A there = k.accumulate ? wide(token.y.v[j]) : A(0);
          y.v[j] = narrow<T>(there + out * sums[j]);
        }
        store(k.to + offset(t), y);
      }
      for (int j = 0; j < kN; ++j) {
        if (restart && k.backward) sums[j] = 0;
      }
    }
  }
  return restarts;
}

template <class T, int kN>
__global__ void __launch_bounds__(kThreads) sum_kernel(Walk<T> k) {
  using A = Accumulator<T>;
  const Place at = place<kN>(k);
  if (!at.there) return;
  Pack<A, kN> sums{};
  const bool restarts = walk<false>(k, at, sums.v);
  store(k.sums + int64_t{blockIdx.x} * k.width + at.column, sums);
  if (at.column == 0) k.restarts[blockIdx.x] = restarts ? 1 : 0;
}

// The sum of each chunk becomes that of all before it, or for kGlobal of all.
template <class T, int kN>
__global__ void __launch_bounds__(kThreads) carry_kernel(Walk<T> k) {
  using A = Accumulator<T>;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kN;
  if (column >= k.width) return;
  A* sums = k.sums + blockIdx.x * k.chunks * k.width + column;
  const int32_t* restarts = k.restarts + blockIdx.x * k.chunks;
  Pack<A, kN> carry{};
  for (int64_t group = 0; group < k.chunks; group += kAhead) {
    Pack<A, kN> read[kAhead] = {};
    for (int n = 0; n < kAhead; ++n) {
      if (group + n < k.chunks) read[n] = load<kN>(sums + (group + n) * k.width);
    }
    for (int n = 0; n < kAhead; ++n) {
      if (group + n >= k.chunks) continue;
      store(sums + (group + n) * k.width, carry);
      const A kept = restarts[group + n] != 0 ? A(0) : k.kept_chunk;
      for (int j = 0; j < kN; ++j) carry.v[j] = kept * carry.v[j] + read[n].v[j];
    }
  }
  for (int64_t c = 0; k.global && c < k.chunks; ++c) store(sums + c * k.width, carry);
}

template <class T, int kN>
__global__ void __launch_bounds__(kThreads) write_kernel(Walk<T> k) {
  using A = Accumulator<T>;
  const Place at = place<kN>(k);
  if (!at.there) return;
  Pack<A, kN> sums = load<kN>(k.sums + int64_t{blockIdx.x} * k.width + at.column);
  walk<true>(k, at, sums.v);
}

template <class T>
void run(T* to, const T* from, const Tensor& beside, int64_t batch, const MeanForm& form,
         const Tensor& starts, bool backward, bool accumulate) {
  using A = Accumulator<T>;
  const int64_t tokens = beside.dim(0) / batch, width = beside.dim(1);
  const int64_t chunks = (tokens + kChunk - 1) / kChunk;
  Tensor sums = beside.like({batch, chunks, width}, kDTypeOf<A>, "prefix sums");
  Tensor restarts = beside.like({batch, chunks}, DType::kI32, "prefix sums");
  const bool ema = form.kind == Kind::kEma;
  const Walk<T> k{to,
                  from,
                  starts.empty() ? nullptr : starts.device_data<int32_t>(),
                  sums.device_data<A>(),
                  restarts.device_data<int32_t>(),
                  batch,
                  tokens,
                  width,
                  chunks,
                  ema ? A(form.decay) : A(1),
                  ema ? A(1 - form.decay) : A(1),
                  ema ? A(std::pow(form.decay, kChunk)) : A(1),
                  ema,
                  form.kind == Kind::kGlobal,
                  backward,
                  accumulate};
  with_packs<T>(width % kPack<T> == 0 && aligned_for_packs(to, from), [&]<int kN>() {
    const auto strips = static_cast<unsigned>((width + kThreads * kN - 1) / (kThreads * kN));
    const auto grid = [strips](int64_t blocks) {
      return Grid{.blocks = dim3(static_cast<unsigned>(blocks), strips), .threads = dim3(kThreads)};
    };
    launch<sum_kernel<T, kN>>(grid(batch * chunks), beside.stream(), k);
    launch<carry_kernel<T, kN>>(grid(batch), beside.stream(), k);
    launch<write_kernel<T, kN>>(grid(batch * chunks), beside.stream(), k);
  });
}

// How many tokens of each of some sequences are new, and how many were there before.
struct Counts {
  static constexpr int kMost = 64;
  int64_t added[kMost], before[kMost];
};

template <class T>
struct Step {
  using A = Accumulator<T>;
  T* c;
  const T* v;
  A* sums;  // [B, C]
  int64_t S, width;
  A kept, added;
  bool ema;
};

template <class T>
__global__ void __launch_bounds__(kThreads) step_kernel(Step<T> k, Counts counts, int64_t first) {
  using A = Accumulator<T>;
  const int64_t sequence = first + blockIdx.x;
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= k.width) return;
  const int64_t added = counts.added[blockIdx.x], before = counts.before[blockIdx.x];
  A sum = k.sums[sequence * k.width + column];
  for (int64_t t = 0; t < k.S; ++t) {
    const int64_t i = (sequence * k.S + t) * k.width + column;
    if (t >= added) {
      k.c[i] = narrow<T>(A(0));
      continue;
    }
    sum = k.kept * sum + k.added * wide(k.v[i]);
    k.c[i] = narrow<T>(k.ema ? sum : sum / static_cast<A>(before + t + 1));
  }
  k.sums[sequence * k.width + column] = sum;
}

}  // namespace

void prefix_mean_forward(Tensor& c, const Tensor& v, int64_t batch, const MeanForm& form,
                         const Tensor& starts) {
  dispatch(v.dtype(), [&]<class T>() {
    run<T>(c.device_data<T>(), v.device_data<T>(), v, batch, form, starts, false, false);
  });
}

void prefix_mean_backward(GradSink& dv, const Tensor& dc, int64_t batch, const MeanForm& form,
                          const Tensor& starts) {
  dispatch(dc.dtype(), [&]<class T>() {
    run<T>(dv.out.device_data<T>(), dc.device_data<T>(), dc, batch, form, starts, true,
           dv.accumulate);
  });
}

void prefix_mean_step(Tensor& c, const Tensor& v, std::span<const int64_t> new_tokens,
                      RunningMean& state, const MeanForm& form) {
  const int64_t B = std::ssize(new_tokens), C = v.dim(1);
  const bool ema = form.kind == Kind::kEma;
  dispatch(v.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Step<T> k{c.device_data<T>(),
                    v.device_data<T>(),
                    state.sums.device_data<A>(),
                    v.dim(0) / B,
                    C,
                    ema ? A(form.decay) : A(1),
                    ema ? A(1 - form.decay) : A(1),
                    ema};
    for (int64_t first = 0; first < B; first += Counts::kMost) {
      const int64_t n = std::min<int64_t>(Counts::kMost, B - first);
      Counts counts{};
      for (int64_t i = 0; i < n; ++i) {
        const auto b = static_cast<size_t>(first + i);
        counts.added[i] = new_tokens[b];
        counts.before[i] = state.counts[b];
        state.counts[b] += new_tokens[b];
      }
      const auto strips = static_cast<unsigned>((C + kThreads - 1) / kThreads);
      launch<step_kernel<T>>(
          {.blocks = dim3(static_cast<unsigned>(n), strips), .threads = dim3(kThreads)}, v.stream(),
          k, counts, first);
    }
  });
}

}  // namespace anabranch::cuda
