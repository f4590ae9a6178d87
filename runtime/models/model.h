// What the trainer, the evaluator and the sampler ask of a model family.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/autograd/tape.h"
#include "core/ops/cached_attention.h"

namespace anabranch {

// The sequences that one forward sees. Samples are consecutive in the global order, so the row of
// token t of sequence b has global index (first_sample + b) * T + t, whatever the layout.
struct MicroBatch {
  Tensor inputs;   // [B, T] int32
  Tensor targets;  // [B, T] int32, the token that follows each input; -1 is not counted
  int64_t first_sample = 0;
  // [B, T] int32, not decreasing: where in its sequence the document of each input begins, for
  // models that mask documents. Empty: attention crosses documents.
  Tensor document_starts = {};
};

// What random numbers of a step are keyed by, besides layer and global row.
struct StepKey {
  uint64_t seed = 0;
  int64_t step = 0;
};

// Parameters and arithmetic of one model. A multiply-add counts as two operations; attention counts
// the causal half, also where a document mask leaves part of it out; recomputation is not counted.
struct ModelCost {
  int64_t parameters = 0;
  int64_t non_embedding_parameters = 0;
  double flops_per_token = 0;  // forward and backward: three times the forward
};

// What generation keeps between calls: one key-value cache per layer.
struct DecodeState {
  std::vector<KvCache> layers;
};

class Model {
 public:
  virtual ~Model() = default;

  // Calls `f` on every parameter, in forward order.
  virtual void visit(const std::function<void(Param&)>& f) = 0;

  // scale * (sum over the targets of their negative log-likelihood in nats), a scalar on `tape`.
  virtual Var loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) = 0;

  // The negative log-likelihood of each target [B * T]; 0 where the target is -1. No dropout.
  virtual Tensor token_losses(const MicroBatch& batch) = 0;

  // The logits [B * S, V] of S tokens of B sequences, all at once; no cache.
  virtual Tensor logits(const Tensor& ids) = 0;

  // The logits [B, V] that follow the last of each sequence's new tokens, which are appended to
  // `state`.
  //
  //   ids         [B, S] int32   new tokens, padded at the right
  //   new_tokens  [B]            how many of each row count, in 1..S
  virtual Tensor decode(const Tensor& ids, std::span<const int64_t> new_tokens,
                        DecodeState& state) = 0;
  [[nodiscard]] virtual DecodeState decode_state(int64_t batch, int64_t tokens) const = 0;

  // Whether document_starts is heeded: then what a token gives depends on the tokens of its own
  // document alone, besides its position in the sequence.
  [[nodiscard]] virtual bool masks_documents() const { return false; }

  [[nodiscard]] virtual ModelCost cost() const = 0;
  [[nodiscard]] virtual int64_t context() const = 0;
  [[nodiscard]] virtual int64_t vocabulary() const = 0;
};

}  // namespace anabranch
