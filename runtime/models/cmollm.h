// cMoLLM: GPT-2 whose feed-forward parts mix the kernels of N streams (mode ffn), or which runs
// spans of its blocks on N streams (mode pipeline). Parts: stream_ffn.h, stream_span.h.
//
//   ffn        h = x + attention(LN_1(x)),   x' = h + StreamFfn(LN_2(h))
//   pipeline   x' = span(x), each of some GPT-2 blocks
//
// Gates that see the whole sequence (ctx global) see the future: such a model has no causal loss.
//
// Source: the cMoLLM paper, Algorithm 1 and Eq. 10 to 18.
#pragma once

#include "parallel/regions.h"
#include "runtime/models/head.h"
#include "runtime/models/model.h"
#include "runtime/models/stream_measures.h"
#include "runtime/models/stream_span.h"

namespace anabranch {

struct CmollmBlock {
  LayerNorm ln_1;
  Gpt2Attention attn;
  LayerNorm ln_2;
  StreamFfn ffn;

  CmollmBlock(const std::string& prefix, const Gpt2Options& options, const CmollmKeys& keys,
              const StreamRegion& region);

  Var operator()(const Var& x, const BlockContext& block, const StreamContext& streams);

  void visit(const auto& f) {
    ln_1.visit(f);
    attn.visit(f);
    ln_2.visit(f);
    ffn.visit(f);
  }
};

class Cmollm final : public Model {
 public:
  // Streams lie over the ranks of regions.model; then only one rank that has all of them decodes.
  // Throws Error (config) as checked(), and if the keys do not go with the sizes.
  Cmollm(const Gpt2Options& options, const CmollmKeys& keys, const Regions& regions = {});

  void visit(const std::function<void(Param&)>& f) override;
  void visit_buffers(const std::function<void(Buffer&)>& f) override;
  Var loss(Tape& tape, const MicroBatch& batch, const StepKey& key, double scale) override;
  using Model::token_losses;
  Tensor token_losses(const MicroBatch& batch, Routing routing) override;
  Tensor logits(const Tensor& ids) override;
  Tensor decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                       DecodeState& state) override;
  [[nodiscard]] DecodeState decode_state(int64_t batch, int64_t tokens) const override;

  [[nodiscard]] const Head& head() const override { return head_; }

  [[nodiscard]] ModelCost cost() const override;
  [[nodiscard]] Products products(int64_t sequences) const override;

  [[nodiscard]] bool looks_ahead() const override { return !has_causal_mode(); }

  [[nodiscard]] bool has_causal_mode() const override;

  [[nodiscard]] bool masks_documents() const override { return true; }

  [[nodiscard]] size_t measure_places(int64_t sequences) const override;
  void end_step(const Measures& measures) override;
  [[nodiscard]] std::vector<Reading> readings(const Measures& measures) const override;

  [[nodiscard]] int64_t context() const override { return options_.context; }

  [[nodiscard]] int64_t vocabulary() const override { return options_.vocabulary; }

 private:
  // One forward over whole sequences; without a key nothing is measured or balanced.
  struct Pass {
    const MicroBatch& batch;
    const StepKey* key;
    double scale;
  };

  [[nodiscard]] bool pipeline() const { return keys_.mode == StreamMode::kPipeline; }

  // What front-ends average over: whole sequences, `starts` of their documents.
  [[nodiscard]] StreamContext averaging(int64_t sequences, const Tensor& starts) const;
  [[nodiscard]] StreamContext whole(const Pass& pass, int64_t unit);
  [[nodiscard]] StreamContext cached(DecodeState& state, size_t unit,
                                     std::span<const int64_t> new_tokens) const;
  Var hidden(Tape* tape, const Pass& pass);
  Var run_layers(const Var& start, const Pass& pass);
  Var run_spans(Tape* tape, const Pass& pass);
  Var decode_layers(const Var& start, std::span<const int64_t> new_tokens, DecodeState& state);
  Var decode_spans(const Var& start, std::span<const int64_t> new_tokens, DecodeState& state);

  Gpt2Options options_;
  CmollmKeys keys_;
  CopyRegion copies_;  // mode pipeline
  Gpt2Tables tables_;
  std::vector<CmollmBlock> layers_;  // mode ffn
  std::vector<Gpt2Block> blocks_;    // mode pipeline
  std::vector<StreamSpan> spans_;
  int64_t span_layers_;
  std::vector<Buffer> quiet_;  // of each layer: steps since a stream carried a tenth of its share
  LayerNorm ln_f_;
  Head head_;
  StreamMeasures figures_;
};

}  // namespace anabranch
