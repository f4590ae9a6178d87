#include "core/cuda/reduce.cuh"
#include "core/ops/stream_balance.h"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunk = 256;  // rows that a block sums

struct Parts {
  int64_t sequences, streams, tokens, chunks;

  Parts(int64_t rows, const Tensor& p)
      : sequences(p.dim(0)),
        streams(p.dim(1)),
        tokens(rows / sequences),
        chunks((tokens + kChunk - 1) / kChunk) {}
};

// Sums [sequences, chunks, N] of the gates of a chunk of a sequence: a thread for each column of up
// to 256, and where there are fewer, for several rows of it.
template <class A>
__global__ void __launch_bounds__(kThreads) sum_kernel(double* sums, const A* g, Parts parts) {
  auto& shares = shared<double[kThreads]>();
  const int64_t N = parts.streams, column = int64_t{blockIdx.y} * kThreads;
  const int width = N - column < kThreads ? static_cast<int>(N - column) : kThreads;
  const int k = static_cast<int>(threadIdx.x) % width,
            group = static_cast<int>(threadIdx.x) / width;
  const int groups = kThreads / width;
  const int64_t sequence = blockIdx.x / parts.chunks, chunk = blockIdx.x % parts.chunks;
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < parts.tokens ? begin + kChunk : parts.tokens;
  double sum = 0;
  if (group < groups) {
    for (int64_t i = begin + group; i < end; i += groups) {
      sum += g[(sequence * parts.tokens + i) * N + column + k];
    }
  }
  shares[threadIdx.x] = sum;
  __syncthreads();
  if (group != 0) return;
  for (int i = 1; i < groups; ++i) sum += shares[i * width + k];
  sums[int64_t{blockIdx.x} * N + column + k] = sum;
}

// One block: p, and L from it.
template <class A>
__global__ void __launch_bounds__(kThreads)
    loss_kernel(A* loss, double* p, const double* sums, Parts parts) {
  const int64_t N = parts.streams;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < parts.sequences * N; i += kThreads) {
    double sum = 0;
    for (int64_t c = 0; c < parts.chunks; ++c) sum += sums[(i / N * parts.chunks + c) * N + i % N];
    const double load = sum / static_cast<double>(parts.tokens);
    p[i] = load;
    squares += load * load;
  }
  squares = block_sum<kThreads>(squares);
  if (threadIdx.x != 0) return;
  *loss = static_cast<A>(static_cast<double>(N) * squares / static_cast<double>(parts.sequences));
}

template <class A>
struct Gradient {
  A* dg;
  bool accumulate;
  const A* dloss;
  const double* p;
  Parts parts;

  template <int kN>
  __device__ void at(int64_t i) const {
    const int64_t N = parts.streams;
    const double load = p[i / (N * parts.tokens) * N + i % N];
    const A g = static_cast<A>(static_cast<double>(*dloss) * 2 * static_cast<double>(N) * load /
                               static_cast<double>(parts.tokens * parts.sequences));
    dg[i] = accumulate ? dg[i] + g : g;
  }
};

// Gates are in an accumulator's type.
template <class F>
void dispatch_gates(DType type, const F& f) {
  if (type == DType::kF64) return f.template operator()<double>();
  f.template operator()<float>();
}

}  // namespace

void stream_balance_forward(Tensor& loss, Tensor& p, const Tensor& g) {
  const Parts parts(g.dim(0), p);
  Tensor sums = p.like({parts.sequences, parts.chunks, parts.streams}, DType::kF64, "stream sums");
  const dim3 blocks(static_cast<unsigned>(parts.sequences * parts.chunks),
                    static_cast<unsigned>((parts.streams + kThreads - 1) / kThreads));
  dispatch_gates(g.dtype(), [&]<class A>() {
    double* s = sums.device_data<double>();
    launch<sum_kernel<A>>({.blocks = blocks, .threads = dim3(kThreads)}, p.stream(), s,
                          g.device_data<A>(), parts);
    launch<loss_kernel<A>>({.threads = dim3(kThreads)}, p.stream(), loss.device_data<A>(),
                           p.device_data<double>(), s, parts);
  });
}

void stream_balance_backward(GradSink& dg, const Tensor& dloss, const Tensor& p) {
  const Parts parts(dg.out.dim(0), p);
  dispatch_gates(dg.out.dtype(), [&]<class A>() {
    const Gradient<A> f{dg.out.device_data<A>(), dg.accumulate, dloss.device_data<A>(),
                        p.device_data<double>(), parts};
    each_pack<1>(f, dg.out.count(), false, p.stream());
  });
}

}  // namespace anabranch::cuda
