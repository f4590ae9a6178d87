// Linear maps of N streams, mixed by gates: cMoLLM's kernel mixture, whose mixed kernel is never
// made.
//
//   U_i = sum_k g_ik (K_k s_i + b_k)
//   dK_k = sum_i g_ik dU_i s_i^T,   db_k = sum_i g_ik dU_i,   ds_i = sum_k g_ik K_k^T dU_i
//   dg_ik = <K_k^T dU_i, s_i> + <dU_i, b_k>
//
// Streams are added in the order of k, row tile by row tile; nothing of size M x N x F exists. Or
// they are added as a tree, one by one and slower: stream_tree.h.
// Source: the cMoLLM paper, Algorithm 1.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Which of two equal sums: of products of scaled inputs (g_k s) K_k^T, or of scaled products.
enum class MixOrder : uint8_t { kScaled, kBranch };

// Whether sums are rounded to the type of activations.
enum class SumType : uint8_t { kRounded, kWide };

// The order in which streams are added: that of k, or a balanced binary tree (base/tree_sum.h), of
// which equal blocks of streams are parts: of types that sums are not wider than.
enum class StreamOrder : uint8_t { kRising, kTree };

// Mixes before a nonlinearity.
//
//   s  [M, C]     activations
//   g  [M, N]     gates, in s's accumulator type
//   w  [N, F, C]  kernels, as s
//   b  [N, F]     in the accumulator type
//   U  [M, F]     as s; in the accumulator's type if `sums` is kWide: parts of a sum that other
//                 ranks add to. A gradient of U may be of s's type even so
//
// Keeps s and g. With N = 1 and g = 1 it is linear(). Throws Error if shapes or types do not fit.
Var stream_linear(const Var& s, const Var& g, Param& w, Param& b,
                  MixOrder order = MixOrder::kScaled, SumType sums = SumType::kRounded,
                  StreamOrder streams = StreamOrder::kRising);

// Throws Error if the shapes or types of an op of streams do not fit.
void check_streams(const char* op, const Var& s, const Var& g, const Param& w, const Param& b);

namespace cpu {

// Where the gradients of an op of streams go.
struct StreamGradients {
  GradSink *ds, *dg;  // null if unwanted
  GradSink dw, db;
};

using StreamBackward = void (*)(StreamGradients& to, const Tensor& dy, const Tensor& s,
                                const Tensor& g, const Tensor& w, const Tensor& b);

void stream_linear_forward(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w,
                           const Tensor& b, MixOrder order);
void stream_linear_backward(StreamGradients& to, const Tensor& du, const Tensor& s, const Tensor& g,
                            const Tensor& w, const Tensor& b);

}  // namespace cpu

namespace cuda {

// Rows of which the scaled inputs, of `columns` = N C elements, are there at once; in backward dA
// of them too.
int64_t stream_linear_rows(int64_t rows, int64_t columns, DType type);

// In s's type are rounded, where the CPU keeps the accumulator's: dA_k = K_k^T dU, U before biases
// are added to scaled inputs' products, and dU if it came wider.
void stream_linear_forward(Tensor& u, const Tensor& s, const Tensor& g, const Tensor& w,
                           const Tensor& b, MixOrder order);
void stream_linear_backward(cpu::StreamGradients& to, const Tensor& du, const Tensor& s,
                            const Tensor& g, const Tensor& w, const Tensor& b);

}  // namespace cuda

// Records an op of streams with its backward; without a tape `y` alone.
Var record_streams(const char* op, const Tensor& y, const Var& s, const Var& g, Param& w, Param& b,
                   cpu::StreamBackward backward);

}  // namespace anabranch
