#include <cstring>

#include "core/base/parallel_for.h"
#include "core/ops/fold_streams.h"

namespace anabranch::cpu {

void fold_streams(Tensor& to, const Tensor& from, int64_t streams, bool back) {
  const Tensor& plain = back ? to : from;
  const int64_t C = plain.dim(1), rows = plain.dim(0) / streams;
  const auto bytes = static_cast<size_t>(C * size_of(from.dtype()));
  std::byte* out = to.raw();
  const std::byte* in = from.raw();
  constexpr int64_t kGrain = 64;
  parallel_for(rows, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t p = 0; p < streams; ++p) {
        const auto folded = static_cast<size_t>(n * streams + p) * bytes;
        const auto plain_at = static_cast<size_t>(p * rows + n) * bytes;
        std::memcpy(out + (back ? plain_at : folded), in + (back ? folded : plain_at), bytes);
      }
    }
  });
}

}  // namespace anabranch::cpu
