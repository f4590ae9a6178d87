#include "core/ops/stream_gelu_mix.h"

#include "core/ops/stream_tree.h"

namespace anabranch {

Var stream_gelu_mix(const Var& s, const Var& g, Param& w, Param& b, SumType sums,
                    StreamOrder streams) {
  check_streams("stream_gelu_mix", s, g, w, b);
  if (streams == StreamOrder::kTree) {
    return stream_tree("stream_gelu_mix", s, g, w, b, cpu::stream_gelu_mix_forward,
                       cpu::stream_gelu_mix_backward);
  }
  const DType type = sums == SumType::kWide ? accumulator_of(s.dtype()) : s.dtype();
  Tensor y = s.value().like({s.dim(0), w.value.dim(1)}, type, "stream_gelu_mix");
  cpu::stream_gelu_mix_forward(y, s.value(), g.value(), w.value, b.value);
  return record_streams("stream_gelu_mix", y, s, g, w, b, cpu::stream_gelu_mix_backward);
}

}  // namespace anabranch
