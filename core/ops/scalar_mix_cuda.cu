#include <algorithm>
#include <utility>

#include "core/ops/scalar_mix.h"
#include "core/ops/whole_sums.cuh"
#include "core/tensor/elementwise.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kMostOuts = 4;  // of a launch
constexpr int kMostIns = 64;  // as many as AltUp has blocks: 3 KiB of a kernel's 4 of arguments
constexpr int kSide = 4;      // a launch makes kSide x kSide dot products at most

// Reads each input once for kMostOuts outputs.
template <class T>
struct Mix {
  T* out[kMostOuts];
  const T* in[kMostIns];
  const Accumulator<T>* weight[kMostOuts][kMostIns];
  int outs, ins;

  template <int kN>
  __device__ void at(int64_t i) const {
    Pack<Accumulator<T>, kN> sums[kMostOuts] = {};
    for (int j = 0; j < ins; ++j) {
      const Pack<T, kN> x = load<kN>(in[j] + i);
      for (int o = 0; o < kMostOuts; ++o) {
        if (o >= outs) continue;  // not a bound: the sums then stay in registers
        const Accumulator<T> w = *weight[o][j];
        for (int l = 0; l < kN; ++l) sums[o].v[l] += w * wide(x.v[l]);
      }
    }
    for (int o = 0; o < kMostOuts; ++o) {
      if (o >= outs) continue;
      Pack<T, kN> y;
      for (int l = 0; l < kN; ++l) y.v[l] = narrow<T>(sums[o].v[l]);
      store(out[o] + i, y);
    }
  }
};

// <a[s / kSide], b[s % kSide]>; 0 where there is none.
template <class T>
struct Dots {
  using Sum = Accumulator<T>;
  static constexpr int kSums = kSide * kSide;
  const T *a[kSide], *b[kSide];

  template <int kN>
  __device__ void add(int64_t i, Sum* sums) const {
    Pack<T, kN> as[kSide];
    for (int m = 0; m < kSide; ++m) as[m] = a[m] != nullptr ? load<kN>(a[m] + i) : Pack<T, kN>{};
    for (int n = 0; n < kSide; ++n) {
      if (b[n] == nullptr) continue;
      const Pack<T, kN> bs = load<kN>(b[n] + i);
      for (int m = 0; m < kSide; ++m) {
        if (a[m] == nullptr) continue;
        for (int l = 0; l < kN; ++l) sums[m * kSide + n] += wide(as[m].v[l]) * wide(bs.v[l]);
      }
    }
  }
};

template <class A>
struct AddDots {
  A* to[kSide * kSide];  // null: not wanted
  bool accumulate[kSide * kSide];

  __device__ void operator()(int s, A sum) const {
    if (to[s] != nullptr) *to[s] = accumulate[s] ? *to[s] + sum : sum;
  }
};

}  // namespace

void mix(std::span<Tensor> ys, std::span<const Tensor> xs, std::span<const Tensor> weights) {
  const size_t ins = xs.size();
  AB_CHECK(ins <= kMostIns, "[scalar_mix] ", ins, " tensors; a GPU mixes up to ", kMostIns);
  dispatch(xs[0].dtype(), [&]<class T>() {
    for (size_t first = 0; first < ys.size(); first += kMostOuts) {
      Mix<T> k{};
      k.outs = static_cast<int>(std::min<size_t>(kMostOuts, ys.size() - first));
      k.ins = static_cast<int>(ins);
      bool packs = true;
      for (size_t j = 0; j < ins; ++j) {
        k.in[j] = xs[j].device_data<T>();
        packs = packs && aligned_for_packs(k.in[j]);
      }
      for (size_t o = 0; o < static_cast<size_t>(k.outs); ++o) {
        k.out[o] = ys[first + o].device_data<T>();
        packs = packs && aligned_for_packs(k.out[o]);
        for (size_t j = 0; j < ins; ++j) {
          k.weight[o][j] = weights[(first + o) * ins + j].device_data<Accumulator<T>>();
        }
      }
      each_pack<kPack<T>>(k, xs[0].count(), packs, xs[0].stream());
    }
  });
}

void add_dots(std::span<GradSink> dws, std::span<const Tensor> dys, std::span<const Tensor> xs) {
  dispatch(xs[0].dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for (size_t i = 0; i < dys.size(); i += kSide) {
      for (size_t j = 0; j < xs.size(); j += kSide) {
        Dots<T> dots{};
        AddDots<A> add{};
        bool packs = true;
        const auto pointer = [&](const Tensor& t) {
          const T* p = t.empty() ? nullptr : t.device_data<T>();
          packs = packs && aligned_for_packs(p);
          return p;
        };
        const size_t rows = std::min<size_t>(kSide, dys.size() - i);
        const size_t columns = std::min<size_t>(kSide, xs.size() - j);
        for (size_t m = 0; m < rows; ++m) dots.a[m] = pointer(dys[i + m]);
        for (size_t n = 0; n < columns; ++n) dots.b[n] = pointer(xs[j + n]);
        for (size_t m = 0; m < rows; ++m) {
          for (size_t n = 0; n < columns; ++n) {
            GradSink& dw = dws[(i + m) * xs.size() + j + n];
            add.to[m * kSide + n] = dw.out.device_data<A>();
            add.accumulate[m * kSide + n] = dw.accumulate;
          }
        }
        whole_sums<kPack<T>>(dots, add, xs[0].count(), packs, xs[0]);
      }
    }
  });
}

}  // namespace anabranch::cuda
