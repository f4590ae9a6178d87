// The blocks of kappa_moe: attention with normed queries and keys and value embeddings, and a
// feed-forward part that is dense or a mixture of experts.
//
//   h = x + W_o attention(norm(x)),   x' = h + ffn(norm(h))
//
//   attention  v_h += 2 s(w_h . u[:G]) V[ids]_h on every second layer, the last among them; q and
//              k are turned by -theta, then normed; G = min(32, C)
//   dense      W_out (silu(z) u),   [z | u] = W_in x
//   mixture    s = W_r x in fp32; the k experts of the largest logits, weighted by a softmax over
//              those; expert e: W_out (z s(kappa z) u),
//              kappa_j = U^tanh(c_s alpha_ej s_e + c_b b_ej)
//
// Experts may lie on the ranks of a group: then rows travel to them and home. The router and all
// else are on every rank.
//
// Source: Li et al., "Confidence-Adaptive SwiGLU for Mixture-of-Experts", 2026.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/nn/layers.h"
#include "core/ops/top_k_route.h"
#include "parallel/dispatch.h"
#include "parallel/pool_rows.h"
#include "parallel/regions.h"
#include "runtime/config/family_config.h"
#include "runtime/models/auxiliary.h"
#include "runtime/models/kappa_measures.h"
#include "runtime/models/model.h"
#include "runtime/models/router_measures.h"

namespace anabranch {

struct KappaOptions {
  int64_t layers = 0, width = 0, heads = 0, context = 0, vocabulary = 0, ffn_width = 0;
  std::vector<bool> mixture;  // of each layer: whether its feed-forward part has experts
  bool recompute = false;
  DType compute = DType::kF32;
};

inline constexpr double kKappaNormEps = 1.2e-7;

// How one forward runs: by value, for recomputation.
struct KappaContext {
  Tensor ids;        // [N] int32
  Tensor positions;  // [N] int32
  std::function<Var(const Var& qkv)> attend = {};
  TopKRule rule = {};  // of the router
  double balance = 0;  // weight of the balance loss at this step
  AuxiliaryLosses losses = {};
  const RouterMeasures* figures = nullptr;  // where in the losses' figures a layer's are
  const KappaMeasures* gate_figures = nullptr;
  int64_t layer = 0;
};

struct KappaAttention {
  Linear qkv;                            // [3C, C]
  std::optional<Param> value_embedding;  // V [V, C]
  std::optional<Param> value_gate;       // [H, G]
  Linear proj;
  int64_t heads;

  KappaAttention(const std::string& prefix, const KappaOptions& options, bool value_embeddings);

  // u [N, C], normed.
  Var operator()(const Var& u, const KappaContext& context);

  void visit(const auto& f) {
    qkv.visit(f);
    if (value_embedding) f(*value_embedding);
    if (value_gate) f(*value_gate);
    proj.visit(f);
  }
};

struct KappaDense {
  Linear in;  // [2F, C]: gate, up
  Linear out;

  KappaDense(const std::string& prefix, const KappaOptions& options);

  Var operator()(const Var& u);

  void visit(const auto& f) {
    in.visit(f);
    out.visit(f);
  }
};

struct KappaMixture {
  KappaKeys keys;
  Linear router;                  // [E, C], read in fp32
  Param in;                       // [E, 2F, C]: gate, up; of this rank's experts, as all below
  Param out;                      // [E, C, F]
  std::optional<Param> alpha, b;  // [E, F]
  Regions regions;

  KappaMixture(const std::string& prefix, const KappaOptions& options, const KappaKeys& keys,
               const Regions& regions);

  // The layer's auxiliary losses are attached to what it returns.
  Var operator()(const Var& u, const KappaContext& context);

  // What figures tell of; refers to this.
  [[nodiscard]] GateWeights gate_weights() const;

  void visit(const auto& f) {
    router.visit(f);
    f(in);
    f(out);
    if (alpha) f(*alpha);
    if (b) f(*b);
  }

 private:
  [[nodiscard]] Kappa form() const;
  // Where the pool lies on several ranks, begins to ask them what `pool` then tells.
  TopKRoute route_of(const Var& logits, const KappaContext& context,
                     std::optional<PoolCounts>& pool) const;
  // What the experts here make of rows that came for them, whose values are the logits of their
  // slots, which alpha needs.
  Var experts_of(const Dispatched& at);
  // The gates, which carry the losses.
  Var with_losses(const TopKRoute& route, const Var& u, const Var& logits,
                  const std::optional<PoolCounts>& pool, const KappaContext& context);
  // weight: of the mean square of all experts' w.
  Var with_mean_square(const Var& gates, std::optional<Param>& w, double weight,
                       const AuxiliaryLosses& losses) const;
};

struct KappaBlock {
  Param resid_lambda, x0_lambda;  // [1]
  KappaAttention attn;
  std::optional<KappaDense> dense;
  std::optional<KappaMixture> mixture;

  KappaBlock(int64_t layer, const KappaOptions& options, const KappaKeys& keys,
             const Regions& regions);

  // Both parts, of x [N, C] that has its share of x_0 already.
  Var operator()(const Var& x, const KappaContext& context);

  void visit(const auto& f) {
    f(resid_lambda);
    f(x0_lambda);
    attn.visit(f);
    if (dense) dense->visit(f);
    if (mixture) mixture->visit(f);
  }
};

}  // namespace anabranch
