// A block of MoEP-MSIT: a dense part, then experts that each choose rows.
//
//   X   = LN_3(f), f = a + swiglu(LN_2(a)), a = x + attention(LN_1(x))     the dense part
//   r   = softmax(W_R LN_r(X))
//   o_t = sum over the experts e that hold t of r_te W_up expert_e(W_down X)_t
//   y   = LN_post(X + o)
//
// Experts may lie on the ranks of a group: then rows of X travel to them, are mapped down and up
// there, and come home; in a run of any layout they are mapped at home. Scores of a pool that lies
// on several ranks are compared over all of them.
//
// On a GPU the host knows how many rows an expert holds where experts choose so many each. By a
// threshold, a predictor or a choice of the rows it does not, and does not wait to learn it: then
// every expert runs on as many rows as the batch has, of which some are unused.
//
// Source: Jain et al., "XpertGPT: Multi-Scale Sparse Expert Routing", 2026, section 3.
#pragma once

#include <optional>
#include <vector>

#include "core/ops/expert_rows.h"
#include "parallel/dispatch.h"
#include "parallel/regions.h"
#include "runtime/config/model_config.h"
#include "runtime/models/auxiliary.h"
#include "runtime/models/choice_measures.h"
#include "runtime/models/model.h"
#include "runtime/models/window_expert.h"

namespace anabranch {

struct MoepOptions {
  int64_t layers = 6, width = 256, heads = 4, context = 512;
  int64_t vocabulary = 16384;
  int64_t ffn_width = 0, expert_ffn_width = 0;  // 0: 8/3 of the width, a multiple of 8
  bool recompute = false;
  DType compute = DType::kF32;
  MoepKeys keys;

  [[nodiscard]] int64_t experts() const { return std::ssize(keys.windows); }

  // Sequences that compete: 1 where each sequence is a pool of its own.
  [[nodiscard]] int64_t pool_sequences() const { return anabranch::pool_sequences(keys); }

  // Experts of a token by token choice.
  [[nodiscard]] int64_t choices() const;
};

// What one forward does in every block.
struct MoepPass {
  int64_t batch = 0, tokens = 0;  // B, T
  bool causal = false;            // choose by what came before alone
  bool predicted = false;         // the predictor chooses, if there is one
  int64_t first_pool = 0;         // number in the step of the first pool
  AuxiliaryLosses losses = {};
  Tensor positions = {};  // [B T] int32
  Tensor last_key = {};   // [B, T] int32, of the dense part; not empty: attention goes both ways
};

// Whether the tokens of an expert are learned from the router: a two-layer map of what it reads.
struct MoepPredictor {
  Linear hidden;  // [64, C]
  Linear out;     // [E, 64]

  MoepPredictor(const std::string& prefix, const MoepOptions& options);

  // Logits [M, E] of being chosen; no gradient reaches `normed`.
  Var operator()(const Var& normed);

  void visit(const auto& f) {
    hidden.visit(f);
    out.visit(f);
  }
};

class MoepBlock {
 public:
  MoepBlock(const std::string& prefix, const MoepOptions& options, int64_t layer,
            const Regions& regions = {});

  // x [B T, C]
  Var operator()(const Var& x, const MoepPass& pass);

  // Of `layers` such blocks on `sequences` whole sequences.
  [[nodiscard]] Products products(int64_t sequences, int64_t layers) const;

  // Moves the thresholds on by the k-th scores of the pools of a step.
  void end_step(const Measures& measures);

  // What `measures` and the thresholds say.
  void read(std::vector<Reading>& to, const Measures& measures) const;

  void visit(const auto& f) {
    if (dense_) dense_->visit(f);
    router_norm_.visit(f);
    router_.visit(f);
    if (predictor_) predictor_->visit(f);
    down_.visit(f);
    for (WindowBlock& expert : experts_) expert.visit(f);
    up_.visit(f);
    ln_post_.visit(f);
  }

  void visit_buffers(const auto& f) {
    f(threshold_);
    f(pools_);
  }

 private:
  // Who holds what, and by which gates; and what is to be learned of it.
  struct Choice {
    SlotPlan plan;
    Var gates;
    Var loss;  // empty: none
    double weight = 0;
  };

  // figures: where a training step is noted; null if it is not.
  Choice choose(const Var& normed, const MoepPass& pass, Measures* figures);
  Choice choose_from(const Var& normed, const Var& logits, const MoepPass& pass, Measures* figures);
  Choice choose_by_token(const Var& logits, const MoepPass& pass);
  Choice choose_by_expert(const Var& normed, const Var& scores, const MoepPass& pass,
                          Measures* figures);
  Choice choose_by_predictor(const Var& normed, const Var& scores);
  [[nodiscard]] SlotPlan by_threshold(const Tensor& scores) const;
  // What the experts here attend over.
  [[nodiscard]] ExpertRows rows_of(const Dispatched& part, const Tensor& gates,
                                   const MoepPass& pass) const;
  // The choice of these rows among all of their pools', which other ranks may have too.
  [[nodiscard]] ExpertChoice choose_in_pool(const Tensor& scores, const MoepPass& pass) const;
  // y, of X.
  Var with_experts(const Var& x, const Choice& choice, const MoepPass& pass);
  void note_scores(Measures& to, const Tensor& kth, const MoepPass& pass) const;
  // Pools of the step that `measures` is of.
  [[nodiscard]] int64_t pools_of(const Measures& measures) const;
  [[nodiscard]] size_t place(int64_t pool, int64_t expert) const;

  MoepOptions options_;
  int64_t layer_;
  Regions regions_;
  ChoiceMeasures figures_;
  std::optional<WindowBlock> dense_;
  LayerNorm router_norm_;
  Linear router_;
  std::optional<MoepPredictor> predictor_;
  Linear down_;  // [C_e, C]
  int64_t first_expert_;
  std::vector<WindowBlock> experts_;  // of this rank
  Linear up_;                         // [C, C_e]
  LayerNorm ln_post_;
  Buffer threshold_;  // [E]
  Buffer pools_;      // [1]: how many moved it
};

}  // namespace anabranch
