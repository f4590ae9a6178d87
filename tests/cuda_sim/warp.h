// What the lanes of a warp do together, and atomic accesses; part of the device side.
#pragma once

#include <functional>
#include <type_traits>

#include "tests/cuda_sim/device.h"

namespace anabranch::cuda_sim {

template <class T>
T shuffle(const char* name, unsigned mask, T value, int source, Site site) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);

  struct Slot {
    T value;
    int source;
    T result;
  } slot{value, source, value};

  const auto complete = [](unsigned live, void* const* slots) {
    for_lanes(live, [&](int lane) {
      auto& mine = *static_cast<Slot*>(slots[lane]);
      if ((live >> static_cast<unsigned>(mine.source) & 1U) == 0) {
        fault("lane " + std::to_string(lane) + " shuffles from lane " +
              std::to_string(mine.source) + ", which is not in the mask or has exited");
      }
      mine.result = static_cast<Slot*>(slots[mine.source])->value;
    });
  };
  warp_collective({name, mask, &slot, complete, site});
  return slot.result;
}

// Which lanes of the mask have the caller's value.
template <class T>
unsigned match(unsigned mask, T value, Site site) {
  struct Slot {
    T value;
    unsigned peers;
  } slot{value, 0};

  const auto complete = [](unsigned live, void* const* slots) {
    for_lanes(live, [&](int lane) {
      auto& mine = *static_cast<Slot*>(slots[lane]);
      for_lanes(live, [&](int other) {
        const bool equal = static_cast<Slot*>(slots[other])->value == mine.value;
        mine.peers |= static_cast<unsigned>(equal) << static_cast<unsigned>(other);
      });
    });
  };
  warp_collective({"__match_any_sync", mask, &slot, complete, site});
  return slot.peers;
}

template <class Op, class T>
T warp_reduce(const char* name, unsigned mask, T value, Site site) {
  const auto complete = [](unsigned live, void* const* slots) {
    T all = *static_cast<T*>(slots[std::countr_zero(live)]);
    for_lanes(live & (live - 1), [&](int lane) { all = Op{}(all, *static_cast<T*>(slots[lane])); });
    for_lanes(live, [&](int lane) { *static_cast<T*>(slots[lane]) = all; });
  };
  warp_collective({name, mask, &value, complete, site});
  return value;
}

template <class T, class F>
T atomically(T* at, F change) {
  before_atomic();
  const T old = *at;
  *at = change(old);
  return old;
}

}  // namespace anabranch::cuda_sim

// NOLINTBEGIN: these names are CUDA's.
inline void __syncwarp(unsigned mask = ~0U, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  int nothing = 0;
  anabranch::cuda_sim::warp_collective(
      {"__syncwarp", mask, &nothing, [](unsigned, void* const*) {}, {file, line}});
}

// The source lane of each, for warps of 32: out of range means the lane itself.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  return anabranch::cuda_sim::shuffle("__shfl_sync", mask, value, source & 31, {file, line});
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  const int source = (anabranch::cuda_sim::lane_id() ^ bits) & 31;
  return anabranch::cuda_sim::shuffle("__shfl_xor_sync", mask, value, source, {file, line});
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  const int lane = anabranch::cuda_sim::lane_id(), source = lane - static_cast<int>(by);
  return anabranch::cuda_sim::shuffle("__shfl_up_sync", mask, value, source < 0 ? lane : source,
                                      {file, line});
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  const int lane = anabranch::cuda_sim::lane_id(), source = lane + static_cast<int>(by);
  return anabranch::cuda_sim::shuffle("__shfl_down_sync", mask, value, source > 31 ? lane : source,
                                      {file, line});
}

inline unsigned __ballot_sync(unsigned mask, int vote, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  const unsigned bit = vote != 0 ? 1U << static_cast<unsigned>(anabranch::cuda_sim::lane_id()) : 0U;
  return anabranch::cuda_sim::warp_reduce<std::bit_or<>>("__ballot_sync", mask, bit, {file, line});
}

template <class T>
unsigned __match_any_sync(unsigned mask, T value, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  return anabranch::cuda_sim::match(mask, value, {file, line});
}

inline int __any_sync(unsigned mask, int vote, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  const int bit = vote != 0 ? 1 : 0;
  return anabranch::cuda_sim::warp_reduce<std::bit_or<>>("__any_sync", mask, bit, {file, line});
}

inline int __all_sync(unsigned mask, int vote, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  const int bit = vote != 0 ? 1 : 0;
  return anabranch::cuda_sim::warp_reduce<std::bit_and<>>("__all_sync", mask, bit, {file, line});
}

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return anabranch::cuda_sim::atomically(at, [=](T old) { return T(old + value); });
}

template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return anabranch::cuda_sim::atomically(at, [=](T old) { return old < value ? value : old; });
}

template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return anabranch::cuda_sim::atomically(at, [=](T old) { return old == expected ? value : old; });
}

inline unsigned __activemask() = delete;  // which lanes that names is not defined

inline int __popc(unsigned bits) { return std::popcount(bits); }

inline int __ffs(int bits) { return __builtin_ffs(bits); }

// NOLINTEND
