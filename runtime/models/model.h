// What the trainer, the evaluator and the sampler ask of a model family.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/autograd/tape.h"
#include "core/ops/cached_attention.h"
#include "core/ops/prefix_mean.h"
#include "runtime/models/head.h"
#include "runtime/models/measures.h"
#include "runtime/models/products.h"

namespace anabranch {

// The sequences that one forward sees, in the host's memory: what a GPU needs of them is sent where
// it is needed. Samples are consecutive in the global order, so the row of
// token t of sequence b has global index (first_sample + b) * T + t, whatever the layout.
struct MicroBatch {
  Tensor inputs;   // [B, T] int32
  Tensor targets;  // [B, T] int32, the token that follows each input; -1 is not counted
  int64_t first_sample = 0;
  // [B, T] int32, not decreasing: where in its sequence the document of each input begins, for
  // models that mask documents. Empty: attention crosses documents.
  Tensor document_starts = {};
};

// What random numbers of a step are keyed by, besides layer and global row; and where figures go.
struct StepKey {
  uint64_t seed = 0;
  int64_t step = 0;
  Measures* measures = nullptr;  // null: nobody asks
  double progress = 0;           // from 0 at the run's first step to 1 at its last
};

// Parameters and arithmetic of one model. Multiply-adds are those of a forward over a whole
// context, per token; attention counts the causal half, also where a document mask leaves part of
// it out; recomputation is not counted.
struct ModelCost {
  int64_t parameters = 0;
  int64_t non_embedding_parameters = 0;
  double linear_macs = 0;     // of the linear maps, the head's among them
  double front_end_macs = 0;  // of what computes gates
  double attention_macs = 0;  // of q k^T and p v

  [[nodiscard]] double macs() const { return linear_macs + front_end_macs + attention_macs; }

  // Forward and backward: three times the forward, two operations each.
  [[nodiscard]] double flops_per_token() const { return 3 * 2 * macs(); }
};

// How tokens are routed in a forward that is not training.
enum class Routing : uint8_t {
  kCausal,    // by what came before alone: every headline figure
  kAsTrained  // as in training, which may look ahead
};

// What generation keeps between calls.
struct DecodeState {
  std::vector<KvCache> layers;            // one for each attention
  int64_t copies = 1;                     // of each sequence in a cache, all of one copy together
  std::vector<RunningMean> running;       // running sums of prefix means, one for each
  std::vector<std::vector<int32_t>> ids;  // of each sequence, for families that keep no cache
};

// Empty caches of `layers` attentions of width C, beside `beside`.
[[nodiscard]] DecodeState empty_caches(const Tensor& beside, int64_t layers, int64_t batch,
                                       int64_t tokens, int64_t width);

// What sequences keep that go on from others: sequence i from sequence from[i] of `state`. A copy,
// with room for as many tokens.
[[nodiscard]] DecodeState branched(const DecodeState& state, std::span<const int64_t> from);

struct ModelSizes {
  int64_t layers, width, heads, context, vocabulary;
};

// Throws Error (config) if one is below 1.
void check_sizes(const ModelSizes& sizes);

class Model {
 public:
  virtual ~Model() = default;

  // Calls `f` on every parameter, in forward order.
  virtual void visit(const std::function<void(Param&)>& f) = 0;

  virtual void visit_buffers(const std::function<void(Buffer&)>& /*f*/) {}

  // scale * (sum over the targets of their negative log-likelihood in nats), a scalar on `tape`.
  // The model's other losses act on the gradients alone; with `scale` one over the tokens of a step
  // they are means over the step, and their sum is in the first place of key.measures.
  virtual Var loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) = 0;

  // The negative log-likelihood of each target [B * T]; 0 where the target is -1. No dropout.
  virtual Tensor token_losses(const MicroBatch& batch, Routing routing) = 0;

  Tensor token_losses(const MicroBatch& batch) { return token_losses(batch, Routing::kCausal); }

  // Whether Routing::kAsTrained differs from kCausal: then its loss is reported too.
  [[nodiscard]] virtual bool looks_ahead() const { return false; }

  // Whether Routing::kCausal exists; if not, token_losses throws Error (config) for it.
  [[nodiscard]] virtual bool has_causal_mode() const { return true; }

  // Places of Measures that a step of `sequences` sequences fills; 0: the model has no figures.
  [[nodiscard]] virtual size_t measure_places(int64_t /*sequences*/) const { return 0; }

  // Places behind those that only a step whose figures are reported fills.
  [[nodiscard]] virtual size_t detail_places() const { return 0; }

  // After a step, with its sums over all ranks: moves buffers on.
  virtual void end_step(const Measures& /*measures*/) {}

  // What those sums say. `measures` was detailed.
  [[nodiscard]] virtual std::vector<Reading> readings(const Measures& /*measures*/) const {
    return {};
  }

  // The logits [B * S, V] of S tokens of B sequences, all at once; no cache.
  virtual Tensor logits(const Tensor& ids) = 0;

  // The final hidden states [B * S, C] of new tokens, which are appended to `state`; those of
  // padding are whatever.
  //
  //   ids         [B, S] int32   new tokens, padded at the right
  //   new_tokens  [B]            how many of each row count, in 1..S
  virtual Tensor decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                               DecodeState& state) = 0;
  // The logits [B, V] that follow the last of each sequence's new tokens.
  Tensor decode(const Tensor& ids, std::span<const int64_t> new_tokens, DecodeState& state);
  [[nodiscard]] virtual DecodeState decode_state(int64_t batch, int64_t tokens) const = 0;

  // What makes logits of final hidden states.
  [[nodiscard]] virtual const Head& head() const = 0;

  // Whether document_starts is heeded: then what a token gives depends on the tokens of its own
  // document alone, besides its position in the sequence.
  [[nodiscard]] virtual bool masks_documents() const { return false; }

  [[nodiscard]] virtual ModelCost cost() const = 0;
  // The matrix products of a forward of `sequences` whole sequences in training; where rows choose
  // experts, evenly. Attention counts windows as full.
  [[nodiscard]] virtual Products products(int64_t sequences) const = 0;
  [[nodiscard]] virtual int64_t context() const = 0;
  [[nodiscard]] virtual int64_t vocabulary() const = 0;
};

}  // namespace anabranch
