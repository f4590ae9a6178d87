#include "runtime/planner/bills.h"

#include <algorithm>

#include "core/ops/stream_gelu_mix.h"
#include "core/ops/stream_tile.h"
#include "parallel/division.h"
#include "parallel/stream_region.h"
#include "runtime/config/model_config.h"

namespace anabranch {
namespace {

// The final norm's x and statistics; and at the loss its output, that gradient and the logits.
void add_ends(StackBill& stack, const Sizes& s, double stats) {
  stack.behind += s.act(s.C) + s.sum(stats);
  stack.head = 2 * s.act(s.C) + s.logits;
}

StackBill uniform(const Sizes& s, const LayerBill& layer) {
  StackBill stack;
  stack.layers.assign(static_cast<size_t>(s.layers), layer);
  stack.output = layer.input;
  return stack;
}

// Attention and its norms: LN_1's x and y, q k v, what attention gives and its lse, h, u. 8 C.
double attention_part(const Sizes& s) { return s.act(8 * s.C) + s.sum(4 + s.H); }

// Partial sums of the gradient of a bias or a row of gates, by fixed blocks of rows.
double partials(const Sizes& s, double columns) {
  return std::min(64.0, std::max(s.rows / 16, 1.0)) * columns * s.a;
}

// What a front-end's ops capture besides u.
double front_end(const Sizes& s, const CmollmKeys& keys) {
  switch (keys.variant) {
    case GateVariant::kLinear:
      return 0;
    case GateVariant::kSimple:  // f, its gate, z
      return s.act(3 * s.C);
    case GateVariant::kContextAware:  // v, f, gate, gated, mean, 2 of C / 4, excited, z
      return s.act(7.5 * s.C) + s.sum(2);
    case GateVariant::kMultiHead:  // f, gate, gated, z
      return s.act(4 * s.C);
    case GateVariant::kAdaptive:  // f, gate, mean, 2 of C / 4, three scales, z
      return s.act(4.5 * s.C) + s.sum(3);
  }
  return 0;
}

// What the backward of the streams holds for a tile of rows.
double stream_scratch(const Sizes& s, bool post) {
  const double tile = std::min(s.rows, static_cast<double>(cpu::kStreamRows));
  const double narrow = s.b < s.a ? s.a + s.b : 0;
  return post ? tile * (s.F * (3 * s.a + narrow) + s.C * s.a) : tile * s.C * (2 * s.a + s.b);
}

// The same on a GPU, of all streams at once: V and dV, or the scaled inputs and dA; and partial
// sums of db.
double gpu_stream_scratch(const Sizes& s, double N, bool post) {
  const auto rows = static_cast<int64_t>(s.rows);
  const DType type = s.b == 2 ? DType::kBF16 : s.b == 4 ? DType::kF32 : DType::kF64;
  if (!post) {
    const auto columns = static_cast<int64_t>(N * s.C);
    const auto tile = static_cast<double>(cuda::stream_linear_rows(rows, columns, type));
    return 2 * tile * N * s.C * s.b + partials(s, N * s.F);
  }
  constexpr double kRowGroup = 64;  // rows of a partial sum
  const auto columns = static_cast<int64_t>(N * s.F);
  const auto tile =
      static_cast<double>(cuda::stream_gelu_mix_rows(rows, columns, accumulator_of(type), true));
  return tile * N * s.F * (s.a + s.b) + tile / kRowGroup * N * s.F * s.a;
}

// Rows of `ranks` ranks that come together at a stream region, besides one's own.
void add_stream_region(LayerBill& layer, const Sizes& s, const CmollmKeys& keys,
                       const Layout& layout) {
  const double m = layout.mesh.model, N = static_cast<double>(keys.streams);
  if (!layout.has_streams) return;
  layer.regions = m * (s.act(s.C) + s.sum(N));  // gathered inputs and gates
  layer.kept += layer.regions;
  const bool slice = layout.streams == StreamLayout::kSlice;
  // What is gathered backward, and partial sums of ds: of a chunk at a time.
  const auto chunks = static_cast<double>(chunk_count(static_cast<int64_t>(s.rows)));
  layer.backward += m * (s.act(slice ? s.C : s.F) + s.sum(s.C)) / chunks + s.sum(N);
}

// What the fullest rank runs of copies of the input: some of them, of the sequences of all ranks.
struct Copies {
  double here = 0;
  Sizes joint;  // of those sequences, once
  Sizes all;    // and of the copies here

  Copies(const Sizes& s, int64_t copies, const Layout& layout)
      : here(static_cast<double>(Division{copies, layout.mesh.model}.count(0))),
        joint(of(s, layout.mesh.model)),
        all(of(joint, here)) {}

  static Sizes of(Sizes s, double times) {
    s.rows *= times;
    s.sequences *= times;
    return s;
  }
};

// A block of a row's dense part in MoEP-MSIT, or of an expert: `C` wide on `rows` rows.
double window_block(double rows, double C, double F, double H, double b, double a) {
  return rows * (b * (9 * C + 3 * F) + a * (6 + H));
}

}  // namespace

StackBill gpt2_bill(const Sizes& s) {
  LayerBill layer;
  layer.kept = attention_part(s) + s.act(2 * s.F);
  layer.input = s.act(s.C);
  layer.backward = s.act(s.C + s.F) + s.product * s.F;  // of the residual stream, of gelu's output
  StackBill stack = uniform(s, layer);
  add_ends(stack, s, 2);
  return stack;
}

StackBill cmollm_bill(const Sizes& s, const CmollmKeys& keys, const Layout& layout) {
  const double N = static_cast<double>(keys.streams);
  LayerBill layer;
  const bool post = keys.mix == MixPoint::kPost;
  // The map down keeps its output too, to which the balance loss is attached.
  layer.kept =
      attention_part(s) + front_end(s, keys) + s.act((post ? 1 : 2) * s.F + s.C) + s.sum(2 * N);
  layer.input = s.act(s.C);
  // At the map down; and at the streams, when the nonlinearity's output is gone.
  const double scratch = layout.on_gpu ? gpu_stream_scratch(s, N, post)
                                       : stream_scratch(s, post) + partials(s, N * s.F);
  const double at_streams = s.act(2 * s.C) + s.sum(N) + scratch;
  // By then the sum with the attached loss is gone.
  layer.backward = std::max(s.act(s.C + s.F) + s.product * s.F, at_streams) - s.act(s.C);
  add_stream_region(layer, s, keys, layout);
  StackBill stack = uniform(s, layer);
  add_ends(stack, s, 2);
  return stack;
}

StackBill pipeline_bill(const Sizes& s, const CmollmKeys& keys, const Layout& layout) {
  const double N = static_cast<double>(keys.streams);
  const Copies copies(s, keys.streams, layout);
  StackBill stack = gpt2_bill(copies.all);
  stack.behind = 0;
  const int64_t each = keys.span > 0 ? keys.span : s.layers;
  const int64_t whole_spans = (s.layers + each - 1) / each;
  const auto spans = static_cast<double>(whole_spans);
  // Expansion: its parts, joined; merging: the last layer's output, folded, and what weighs it.
  const double expand = copies.all.act(2 * s.C) + copies.here * front_end(copies.joint, keys);
  const double merge = s.act(2 * N * s.C + 7 * s.C) + s.sum(2 * N);
  stack.before = spans * (expand + copies.joint.act(s.C)) + (spans - 1) * merge;
  stack.behind = merge;
  add_ends(stack, s, 2);
  return stack;
}

StackBill parascale_bill(const Sizes& s, const ParascaleKeys& keys, const Layout& layout) {
  const double P = static_cast<double>(keys.streams);
  const Copies copies(s, keys.streams, layout);
  const Sizes& all = copies.all;
  StackBill stack = gpt2_bill(all);
  stack.behind = 0;
  if (keys.streams > 1) {
    // q k v again behind their prefixes, and what attention gives with and without them.
    const double prefix = all.sequences * static_cast<double>(keys.prefix);
    for (LayerBill& layer : stack.layers) {
      layer.kept += all.act(4 * s.C) + prefix * (4 * s.C * s.b + s.H * s.a);
    }
    stack.before += copies.joint.act(s.C);
    stack.behind += s.act(3 * P * s.C) + s.sum(2 * P) + s.act(3 * s.C) + s.sum(2 * P);
  }
  add_ends(stack, s, 2);
  return stack;
}

StackBill altup_bill(const Sizes& s, const AltupKeys& keys) {
  const double K = static_cast<double>(keys.blocks);
  LayerBill layer;
  // x whole, its parts, predictions and results; the block's own; computed and the difference.
  layer.kept = s.act(4 * K * s.C) + attention_part(s) + s.act(s.C + 2 * s.F);
  layer.input = s.act(K * s.C);
  layer.backward = s.act((3 * K + 2) * s.C);
  StackBill stack = uniform(s, layer);
  stack.before = s.act((keys.recycled ? K : 0) * s.C);
  stack.behind = s.act(K * s.C);
  Sizes wide = s;
  if (!keys.recycled) wide.C *= K;
  add_ends(stack, wide, 2);
  return stack;
}

StackBill moep_bill(const Sizes& s, const MoepKeys& keys, const Routed& routed) {
  const double E = static_cast<double>(keys.windows.size());
  const auto Ce = static_cast<double>(keys.expert_width);
  const auto Fe = static_cast<double>(two_thirds_of_four(keys.expert_width, keys.ffn_round));
  const auto He = static_cast<double>(keys.expert_heads);
  LayerBill layer;
  if (keys.global_block) layer.kept = window_block(s.rows, s.C, s.F, s.H, s.b, s.a);
  // X, the router's norm, logits and scores, X's low map, the last norm's sum.
  layer.kept += s.act(3 * s.C + Ce) + s.sum(4 + 2 * E);
  // An expert's rows, its block, what it normalises; gates and places. What goes up comes home.
  const double S = routed.slots;
  layer.kept += window_block(S, Ce, Fe, He, s.b, s.a) + S * (s.b * Ce + s.a + 6 * 4);
  layer.kept += s.act(routed.each * s.C);
  layer.input = s.act(s.C);
  layer.backward = s.act(s.C) + S * s.C * s.b;
  layer.regions = s.act(routed.remote * s.C);
  layer.kept += layer.regions;
  StackBill stack = uniform(s, layer);
  add_ends(stack, s, 2);
  if (keys.dropout > 0) stack.before += s.act(s.C);
  return stack;
}

StackBill kappa_bill(const Sizes& s, const KappaKeys& keys, const Routed& routed) {
  const double E = static_cast<double>(keys.experts), S = routed.slots, M = s.rows;
  const double k = static_cast<double>(keys.top_k);
  StackBill stack;
  const std::vector<bool> mixtures = mixture_layers(keys, s.layers);
  for (int64_t l = 0; l < s.layers; ++l) {
    LayerBill layer;
    // The stream before and after the mix of scalars, u, q k v normed, attention's y, h, u.
    layer.kept = s.act(9 * s.C) + s.sum(2 + 3 * s.H);
    layer.input = s.act(2 * s.C);
    if (l % 2 == (s.layers - 1) % 2) {  // embeddings of values, and their gates
      const double gates = std::min(s.C, static_cast<double>(kGateChannels));
      layer.kept += s.act(s.C + gates) + s.sum(s.H);
    }
    if (!mixtures[static_cast<size_t>(l)]) {
      layer.kept += s.act(3 * s.F);
      layer.backward = s.act(s.C + 2 * s.F);
      stack.layers.push_back(layer);
      continue;
    }
    // Gathered rows, gate and up, h; z, which comes home; logits, gates, scores and places of
    // slots.
    layer.kept += S * s.b * (s.C + 3 * s.F) + s.act(k * s.C) + s.sum(E + k) + 2 * S * s.a +
                  4 * (2 * M * k + 2 * S);
    layer.backward = s.act(s.C) + s.sum(E) + S * s.b * std::max(s.C, 2 * s.F - s.C);
    layer.regions = s.act(routed.remote * s.C);
    layer.kept += layer.regions;
    stack.layers.push_back(layer);
  }
  stack.before = s.act(2 * s.C) + s.sum(1);  // the embedding and its norm
  add_ends(stack, s, 1);
  return stack;
}

}  // namespace anabranch
