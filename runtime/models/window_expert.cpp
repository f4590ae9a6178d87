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

// Where the row of each slot stands in the batch.
class Numbers {
 public:
  Numbers(const Tensor& source, const Tensor& numbers)
      : source_(source.data<int32_t>()),
        number_(numbers.empty() ? nullptr : numbers.data<int32_t>()) {}

  [[nodiscard]] int64_t of(int64_t slot) const {
    const int32_t row = source_[slot];
    return number_ == nullptr ? row : number_[row];
  }

 private:
  const int32_t *source_, *number_;
};

// The slots of an expert in the order of its attention.
std::vector<int64_t> ordered_slots(const SlotPlan& plan, int64_t e, const Tensor& gates,
                                   const RowLayout& layout, const Numbers& numbers) {
  std::vector<int64_t> slots(static_cast<size_t>(plan.groups.size(e)));
  std::iota(slots.begin(), slots.end(), plan.groups.begin(e));
  if (layout.order == SlotOrder::kTime) return slots;
  const auto* gate = plan.gate.data<int32_t>();
  const auto sort_by = [&]<class T>(const T* score) {
    std::ranges::stable_sort(slots, [&](int64_t a, int64_t b) {
      const int64_t of_a = numbers.of(a) / layout.segment_rows;
      const int64_t of_b = numbers.of(b) / layout.segment_rows;
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

// Rows in the order of attention, by where they stand in the batch.
struct Line {
  std::vector<int64_t> numbers;
  const RowLayout& layout;

  [[nodiscard]] int64_t segment(int64_t i) const {
    return numbers[static_cast<size_t>(i)] / layout.segment_rows;
  }

  [[nodiscard]] int64_t position(int64_t i) const {
    return numbers[static_cast<size_t>(i)] % layout.segment_rows;
  }

  // Whether row `b` of the same segment is too far from row `a` to be seen.
  [[nodiscard]] bool apart(int64_t a, int64_t b) const {
    if (layout.window == 0) return false;
    const bool compact = layout.window_position == SlotPosition::kCompact;
    return (compact ? b - a : position(b) - position(a)) >= layout.window;
  }
};

// As far after a row as first_key lies before it.
void see_both_ways(ExpertRows& rows, const Line& line) {
  const int64_t S = std::ssize(line.numbers);
  rows.last_key = rows.first_key.like({1, S}, DType::kI32, "expert.last_key");
  auto* const last_key = rows.last_key.data<int32_t>();
  int64_t last = 0;
  for (int64_t i = S - 1; i >= 0; --i) {
    if (i == S - 1 || line.segment(i) != line.segment(i + 1)) last = i;
    while (line.apart(i, last)) --last;
    last_key[i] = static_cast<int32_t>(last);
  }
}

}  // namespace

ExpertRows arrange_rows(const SlotPlan& plan, int64_t e, const Tensor& gates,
                        const RowLayout& layout, const Tensor& numbers) {
  const Numbers of_slot(plan.source, numbers);
  const std::vector<int64_t> slots = ordered_slots(plan, e, gates, layout, of_slot);
  const int64_t S = std::ssize(slots);
  Line line{{}, layout};
  for (const int64_t slot : slots) line.numbers.push_back(of_slot.of(slot));
  const auto ints = [&](Shape shape, const char* tag) {
    return plan.source.like(shape, DType::kI32, tag);
  };
  ExpertRows rows{ints({S}, "expert.slots"),
                  ints({S}, "expert.source"),
                  ints({S}, "expert.positions"),
                  ints({1, S}, "expert.first_key"),
                  {}};
  int64_t begin = 0, first = 0;  // of the segment, and of what row i sees
  for (int64_t i = 0; i < S; ++i) {
    const int64_t slot = slots[static_cast<size_t>(i)];
    rows.slots.data<int32_t>()[i] = static_cast<int32_t>(slot);
    rows.source.data<int32_t>()[i] = plan.source.data<int32_t>()[slot];
    if (i == 0 || line.segment(i) != line.segment(i - 1)) begin = first = i;
    while (line.apart(first, i)) ++first;
    const bool compact = layout.rope_position == SlotPosition::kCompact;
    rows.positions.data<int32_t>()[i] =
        static_cast<int32_t>(compact ? i - begin : line.position(i));
    rows.first_key.data<int32_t>()[i] = static_cast<int32_t>(first);
  }
  if (layout.both_ways) see_both_ways(rows, line);
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
