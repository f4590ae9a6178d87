// Ops of N streams by the kernels for one of them, whose results are added as a balanced binary
// tree: then ranks that have equal blocks of streams may add their parts as the same tree.
#pragma once

#include <functional>

#include "core/ops/stream_linear.h"

namespace anabranch {

// The sum over streams of `forward`, and of ds of `backward`; arguments and errors as
// stream_linear's, but that s has its accumulator's type and is on a CPU.
//
//   forward   y, s, g, w, b of one stream
//   backward  of one stream
Var stream_tree(const char* op, const Var& s, const Var& g, Param& w, Param& b,
                const std::function<void(Tensor& y, const Tensor& s, const Tensor& g,
                                         const Tensor& w, const Tensor& b)>& forward,
                cpu::StreamBackward backward);

}  // namespace anabranch
