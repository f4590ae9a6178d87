// Sums of columns in shared memory, to which a warp adds kN neighbouring columns a lane: those of
// lane l are (32 s + l) kN .. + kN - 1 in its step s. In the order of the columns lanes would meet
// in the same banks, kN at a time. So a step has first the lanes' first 16 bytes, one lane after
// the other, then their second ones: each access of a warp is of 512 bytes without a gap.
#pragma once

#include <cstdint>

#include "core/cuda/reduce.cuh"
#include "core/tensor/pack.cuh"

namespace anabranch::cuda {

// Elements of one access.
template <int kN, class A>
inline constexpr int kLanePiece = kN < kPack<A> ? kN : kPack<A>;

// Where column i of a lane's kN lies in a step of 32 kN.
template <int kN, class A>
__host__ __device__ constexpr int lane_place(int lane, int i) {
  constexpr int kPiece = kLanePiece<kN, A>;
  return i / kPiece * (kWarp * kPiece) + lane * kPiece + i % kPiece;
}

// Where column c of a row lies.
template <int kN, class A>
__host__ __device__ constexpr int64_t column_place(int64_t c) {
  constexpr int kStep = kWarp * kN;
  const int in_step = static_cast<int>(c % kStep);
  return c - in_step + lane_place<kN, A>(in_step / kN, in_step % kN);
}

// The caller's columns of a step: sums += x, or sums = x.
template <int kN, class A>
__device__ __forceinline__ void add_lane(A* step, const Pack<A, kN>& x) {
  constexpr int kPiece = kLanePiece<kN, A>;
  for (int i = 0; i < kN; i += kPiece) {
    A* at = step + lane_place<kN, A>(lane_of_warp(), i);
    Pack<A, kPiece> sums = load<kPiece>(at);
    for (int j = 0; j < kPiece; ++j) sums.v[j] += x.v[i + j];
    store_direct(at, sums);
  }
}

template <int kN, class A>
__device__ __forceinline__ void put_lane(A* step, const Pack<A, kN>& x) {
  constexpr int kPiece = kLanePiece<kN, A>;
  for (int i = 0; i < kN; i += kPiece) {
    Pack<A, kPiece> sums;
    for (int j = 0; j < kPiece; ++j) sums.v[j] = x.v[i + j];
    store_direct(step + lane_place<kN, A>(lane_of_warp(), i), sums);
  }
}

}  // namespace anabranch::cuda
