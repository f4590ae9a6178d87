#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "core/cuda/reduce.cuh"
#include "core/ops/row_order.cuh"

namespace anabranch::cuda {
namespace {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kWarps = kDigits / kWarp;  // of a block: one chunk of rows each, one digit a thread
constexpr int64_t kMostChunks = 128;     // every block reads the counts of all of them

struct Pass {
  const int32_t *keys, *rows;  // rows: null for 0, 1, 2, ...
  int32_t *to_keys, *to_rows;
  int32_t* counts;  // [chunks, kDigits]
  int64_t count, per_chunk, chunks;
  int32_t largest;  // key
  int shift;        // of the digit

  __device__ int32_t key(int64_t i) const {
    const int32_t key = keys[i];
    return key < 0 ? 0 : key > largest ? largest : key;
  }

  __device__ int digit_of(int32_t key) const { return key >> shift & (kDigits - 1); }

  __device__ int64_t end(int64_t chunk) const {
    return (chunk + 1) * per_chunk < count ? (chunk + 1) * per_chunk : count;
  }
};

// The lanes with this digit that are `live`. All lanes must ask.
__device__ __forceinline__ unsigned lanes_with(int digit, bool live) {
  unsigned same = __ballot_sync(kAllLanes, live ? 1 : 0);
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const int vote = digit >> bit & 1;
    const unsigned votes = __ballot_sync(kAllLanes, vote);
    same &= vote != 0 ? votes : ~votes;
  }
  return same;
}

__device__ __forceinline__ unsigned lanes_before(int lane) { return (1U << lane) - 1; }

// counts[chunk, digit]; the warps do not meet.
__global__ void __launch_bounds__(kDigits) count_kernel(Pass p) {
  auto& all = shared<int32_t[kWarps][kDigits]>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t chunk = int64_t{blockIdx.x} * kWarps + warp, end = p.end(chunk);
  int32_t* counts = all[warp];
  for (int digit = lane; digit < kDigits; digit += kWarp) counts[digit] = 0;
  __syncwarp();
  for (int64_t first = chunk * p.per_chunk; first < end; first += kWarp) {
    const bool live = first + lane < end;
    const int digit = live ? p.digit_of(p.key(first + lane)) : 0;
    const unsigned same = lanes_with(digit, live);
    if (live && (same & lanes_before(lane)) == 0) counts[digit] += __popc(same);
    __syncwarp();
  }
  if (chunk >= p.chunks) return;
  for (int digit = lane; digit < kDigits; digit += kWarp) {
    p.counts[chunk * kDigits + digit] = counts[digit];
  }
}

// The sum of the values of the threads before this one, in a block of kDigits.
__device__ __forceinline__ int32_t sum_before(int32_t value) {
  auto& sums = shared<int32_t[kWarps], struct SumsBefore>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int32_t sum = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int32_t below = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
    if (lane >= distance) sum += below;
  }
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  for (int i = 0; i < warp; ++i) sum += sums[i];
  return sum - value;
}

// Puts every row where its digit, its chunk and its place in that say.
__global__ void __launch_bounds__(kDigits) place_kernel(Pass p) {
  auto& all = shared<int32_t[kWarps][kDigits]>();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_chunk = int64_t{blockIdx.x} * kWarps;
  int32_t total = 0;  // of digit `thread`
  for (int64_t i = 0; i < p.chunks; ++i) {
    if (i >= first_chunk && i < first_chunk + kWarps) all[i - first_chunk][thread] = total;
    total += p.counts[i * kDigits + thread];
  }
  const int32_t smaller = sum_before(total);
  for (int i = 0; i < kWarps; ++i) {
    if (first_chunk + i < p.chunks) all[i][thread] += smaller;
  }
  __syncthreads();

  const int lane = thread % kWarp;
  const int64_t chunk = first_chunk + thread / kWarp, end = p.end(chunk);
  int32_t* next = all[thread / kWarp];
  for (int64_t first = chunk * p.per_chunk; first < end; first += kWarp) {
    const int64_t i = first + lane;
    const bool live = i < end;
    const int32_t key = live ? p.key(i) : 0;
    const int digit = p.digit_of(key);
    const unsigned same = lanes_with(digit, live);
    const int32_t before = __popc(same & lanes_before(lane));
    if (live) {
      const int32_t place = next[digit] + before;
      p.to_keys[place] = key;
      p.to_rows[place] = p.rows != nullptr ? p.rows[i] : static_cast<int32_t>(i);
    }
    __syncwarp();
    if (live && before == 0) next[digit] += __popc(same);
    __syncwarp();
  }
}

}  // namespace

RowOrder row_order(const Tensor& keys, int64_t bound) {
  const int64_t N = keys.count();
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  AB_CHECK(N <= kLargest && bound >= 1 && bound <= kLargest, "[row_order] ", N, " rows by keys to ",
           bound, " are more than 32 bits count");
  const Tensor buffers = keys.like({4, N}, DType::kI32, "row_order");
  const auto part = [&](int64_t i) { return buffers.view(i * N, {N}); };
  RowOrder now{keys, {}}, next{part(0), part(1)}, other{part(2), part(3)};
  const int64_t least = std::max<int64_t>(128, (N + kMostChunks - 1) / kMostChunks);
  const int64_t per_chunk = (least + kWarp - 1) / kWarp * kWarp;
  const int64_t chunks = (N + per_chunk - 1) / per_chunk;
  Tensor counts = keys.like({chunks, kDigits}, DType::kI32, "row_order");
  const Grid grid{.blocks = dim3(static_cast<unsigned>((chunks + kWarps - 1) / kWarps)),
                  .threads = dim3(kDigits)};
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(bound - 1))));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    const Pass p{std::as_const(now.keys).device_data<int32_t>(),
                 now.rows.empty() ? nullptr : std::as_const(now.rows).device_data<int32_t>(),
                 next.keys.device_data<int32_t>(),
                 next.rows.device_data<int32_t>(),
                 counts.device_data<int32_t>(),
                 N,
                 per_chunk,
                 chunks,
                 static_cast<int32_t>(bound - 1),
                 shift};
    launch<count_kernel>(grid, keys.stream(), p);
    launch<place_kernel>(grid, keys.stream(), p);
    now = next;
    std::swap(next, other);
  }
  return now;
}

}  // namespace anabranch::cuda
