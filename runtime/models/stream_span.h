// A span of layers that runs on N streams: cMoLLM's pipeline, from expansion to merging.
//
//   X_k   = Conv_k(x)                             the front-end's map, of each stream's own weights
//   H_k   = blocks(X_k)                           weights shared by the streams
//   a     = softmax(...)(H),   q = (1 - beta) a + beta / N            stream_merge.h
//   H'    = F sum_k q_k H_k + mean_k H_k,   x' = Proj H' + b
//   L     = alpha N sum_k p_k^2,   p the mean of a over a sequence
//
// At first F = 0, Proj = I: the span is the mean of its streams. The mean reaches every stream, so
// none can be starved. Streams may lie on several ranks (copy_region.h), Conv_k where stream k is;
// the rest is on every rank. Source: the cMoLLM paper, Eq. 10 to 18.
#pragma once

#include <vector>

#include "parallel/copy_region.h"
#include "runtime/models/stream_ffn.h"
#include "runtime/models/stream_merge.h"

namespace anabranch {

// Conv_k: a plain linear map, or a front-end.
struct StreamExpand {
  std::optional<Linear> plain;
  FrontEnd front;

  StreamExpand(const std::string& prefix, int64_t width, const CmollmKeys& keys);

  Var operator()(const Var& x, const StreamContext& context) {
    return plain ? (*plain)(x) : front(x, context);
  }

  void visit(const auto& f) {
    if (plain) plain->visit(f);
    front.visit(f);
  }
};

struct StreamSpan {
  std::vector<StreamExpand> expand;  // of the streams that are here
  StreamWeights weights;
  Linear mix, proj;  // F, without bias; Proj
  int64_t streams;   // N
  double beta;

  StreamSpan(const std::string& prefix, int64_t width, const CmollmKeys& keys,
             const CopyRegion& where);

  // The input [rows, C], once for each stream here, as those streams, stream-major. `contexts` has
  // one for each: what their front-ends average over.
  Var split(std::span<const Var> xs, std::span<const StreamContext> contexts);
  // All N streams [N * rows, C] as one.
  Var merge(const Var& h, const StreamContext& context);
};

}  // namespace anabranch
