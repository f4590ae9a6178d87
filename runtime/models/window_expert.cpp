#include "runtime/models/window_expert.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/ops/add.h"
#include "core/ops/attention.h"
#include "core/ops/rope.h"
#include "core/ops/sort_key.h"
#include "core/ops/swiglu.h"

namespace anabranch {
namespace {

// The slots of an expert in the order of its attention.
std::vector<int64_t> ordered_slots(const SlotPlan& plan, int64_t e, const Tensor& gates,
                                   const RowLayout& layout) {
  std::vector<int64_t> slots(static_cast<size_t>(plan.groups.size(e)));
  std::iota(slots.begin(), slots.end(), plan.groups.begin(e));
  if (layout.order == SlotOrder::kTime) return slots;
  const auto* row = plan.source.data<int32_t>();
  const auto* gate = plan.gate.data<int32_t>();
  const auto sort_by = [&]<class T>(const T* score) {
    std::ranges::stable_sort(slots, [&](int64_t a, int64_t b) {
      const int64_t of_a = row[a] / layout.segment_rows, of_b = row[b] / layout.segment_rows;
      return of_a != of_b ? of_a < of_b : sort_key(score[gate[a]]) > sort_key(score[gate[b]]);
    });
  };
  if (gates.dtype() == DType::kF64) {
    sort_by(gates.data<double>());
  } else {
    sort_by(gates.data<float>());
  }
  return slots;
}

// From row `a` to row `b` of the same segment.
int64_t distance(const ExpertRows& rows, SlotPosition form, int64_t a, int64_t b) {
  const auto* const source = rows.plan.source.data<int32_t>();
  return form == SlotPosition::kCompact ? b - a : source[b] - source[a];
}

// As far after a row as first_key lies before it.
void see_both_ways(ExpertRows& rows, const RowLayout& layout) {
  const int64_t S = rows.plan.source.count();
  rows.last_key = rows.first_key.like({1, S}, DType::kI32, "expert.last_key");
  const auto* const source = rows.plan.source.data<int32_t>();
  auto* const last_key = rows.last_key.data<int32_t>();
  const auto segment = [&](int64_t i) { return source[i] / layout.segment_rows; };
  int64_t last = 0;
  for (int64_t i = S - 1; i >= 0; --i) {
    if (i == S - 1 || segment(i) != segment(i + 1)) last = i;
    while (layout.window > 0 && distance(rows, layout.window_position, i, last) >= layout.window) {
      --last;
    }
    last_key[i] = static_cast<int32_t>(last);
  }
}

}  // namespace

ExpertRows arrange_rows(const SlotPlan& plan, int64_t e, const Tensor& gates,
                        const RowLayout& layout) {
  const std::vector<int64_t> slots = ordered_slots(plan, e, gates, layout);
  const int64_t S = std::ssize(slots);
  const auto ints = [&](Shape shape, const char* tag) {
    return plan.source.like(shape, DType::kI32, tag);
  };
  ExpertRows rows;
  rows.plan = {plan.rows, {{0, S}}, ints({S}, "expert.source"), ints({S}, "expert.gate")};
  rows.positions = ints({S}, "expert.positions");
  rows.first_key = ints({1, S}, "expert.first_key");
  auto* source = rows.plan.source.data<int32_t>();
  auto* gate = rows.plan.gate.data<int32_t>();
  auto* rope_position = rows.positions.data<int32_t>();
  auto* first_key = rows.first_key.data<int32_t>();
  int64_t begin = 0, first = 0;  // of the segment, and of what row i sees
  for (int64_t i = 0; i < S; ++i) {
    const auto slot = static_cast<size_t>(i);
    source[i] = plan.source.data<int32_t>()[slots[slot]];
    gate[i] = plan.gate.data<int32_t>()[slots[slot]];
    const int64_t segment = source[i] / layout.segment_rows;
    if (i == 0 || segment != source[i - 1] / layout.segment_rows) begin = first = i;
    while (layout.window > 0 && distance(rows, layout.window_position, first, i) >= layout.window) {
      ++first;
    }
    const bool compact = layout.rope_position == SlotPosition::kCompact;
    rope_position[i] = static_cast<int32_t>(compact ? i - begin : source[i] % layout.segment_rows);
    first_key[i] = static_cast<int32_t>(first);
  }
  if (layout.both_ways) see_both_ways(rows, layout);
  return rows;
}

WindowBlock::WindowBlock(const std::string& prefix, const std::string& attention,
                         const std::string& ffn, const WindowBlockSizes& o)
    : ln_1(prefix + "ln_1", o.width),
      qkv(prefix + attention + "qkv", o.width, 3 * o.width, false, Init::normal(kMoepInitStd)),
      proj(prefix + attention + "proj", o.width, o.width, false, Init::normal(kMoepInitStd)),
      ln_2(prefix + "ln_2", o.width),
      in(prefix + ffn + "in", o.width, 2 * o.ffn_width, false, Init::normal(kMoepInitStd)),
      out(prefix + ffn + "out", o.ffn_width, o.width, false, Init::normal(kMoepInitStd)),
      ln_3(prefix + "ln_3", o.width),
      heads(o.heads) {
  qkv.weight.matrices = 3;
  in.weight.matrices = 2;
}

Var WindowBlock::operator()(const Var& x, int64_t batch, const Tensor& positions,
                            const Tensor& first_key, const Tensor& last_key) {
  const RopeForm form{heads, heads, x.dim(1) / heads};
  const Var turned = rope(qkv(ln_1(x)), positions, form);
  const auto [h, u] = ln_2.add(x, proj(attention(turned, batch, heads, first_key, last_key)));
  return ln_3.add(h, out(swiglu(in(u)))).norm;
}

void WindowBlock::add_products(Products& products, const std::string& name, int64_t rows,
                               int64_t count) const {
  products.add(product_of(name + "qkv", qkv.weight, rows, count));
  products.add(product_of(name + "projection", proj.weight, rows, count));
  products.add(product_of(name + "feed-forward in", in.weight, rows, count));
  products.add(product_of(name + "feed-forward out", out.weight, rows, count));
}

}  // namespace anabranch
