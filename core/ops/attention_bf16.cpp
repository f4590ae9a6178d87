#include "core/ops/attention_bf16.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "core/base/parallel_for.h"
#include "core/ops/attention_pack.h"
#include "core/ops/attention_tile.h"

namespace anabranch::cpu {
namespace {

constexpr int64_t kRow = kQueryTile<float>;
constexpr int64_t kKeyBlock = 512;  // long enough that a call of oneDNN costs little

// A head is one thread's work: oneDNN must not split it by the threads it finds, which would change
// the order of sums.
class OneThread {
 public:
  OneThread() : kept_(thread_count()) { set_thread_count(1); }

  ~OneThread() { set_thread_count(kept_); }

  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int kept_;
};

constexpr int64_t rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// c[m, n] = or += scale sum_k a(i, k) b(k, n); a and b as stored, or transposed; all dense.
struct Form {
  int64_t m, n, k;
  bool a_transposed, b_transposed, accumulate;
  float scale;

  bool operator==(const Form&) const = default;
};

// Products by form, each prepared once.
class Products {
 public:
  void run(const Form& form, const Bf16* a, const Bf16* b, float* c) {
    Prepared& p = find(form);
    p.a.set_data_handle(const_cast<Bf16*>(a));
    p.b.set_data_handle(const_cast<Bf16*>(b));
    p.c.set_data_handle(c);
    p.product.execute(stream_, p.arguments);
  }

 private:
  struct Prepared {
    Form form;
    dnnl::matmul product;
    dnnl::memory a, b, c;
    std::unordered_map<int, dnnl::memory> arguments;
  };

  Prepared& find(const Form& form) {
    for (const auto& p : prepared_) {
      if (p->form == form) return *p;
    }
    prepared_.push_back(prepare(form));
    return *prepared_.back();
  }

  std::unique_ptr<Prepared> prepare(const Form& f) const {
    using dnnl::memory;
    const auto matrix = [](int64_t rows, int64_t columns, bool transposed, memory::data_type type) {
      return memory::desc({rows, columns}, type,
                          transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
    };
    const auto half = memory::data_type::bf16;
    const memory::desc a = matrix(f.m, f.k, f.a_transposed, half);
    const memory::desc b = matrix(f.k, f.n, f.b_transposed, half);
    const memory::desc c = matrix(f.m, f.n, false, memory::data_type::f32);
    dnnl::primitive_attr attributes;
    if (f.scale != 1) attributes.set_output_scales(0, {f.scale});
    if (f.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, b, c), attributes, engine_);
    auto p = std::make_unique<Prepared>(Prepared{f,
                                                 dnnl::matmul(chosen),
                                                 memory(a, engine_, nullptr),
                                                 memory(b, engine_, nullptr),
                                                 memory(c, engine_, nullptr),
                                                 {}});
    p->arguments = {{DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}};
    return p;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<std::unique_ptr<Prepared>> prepared_;
};

// Copies rows side by side and fills up with rows of zeros.
void pack(Bf16* to, const Bf16* from, int64_t stride, int64_t rows, int64_t filled, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * stride, width, to + r * width);
  std::fill(to + rows * width, to + filled * width, Bf16());
}

void round(Bf16* to, const float* from, int64_t count) {
  store_rows(Rows<Bf16>{to, count, 1, count}, from, count, false);
}

}  // namespace

struct Bf16Heads::State {
  State(const Tensor& beside, int64_t keys, int64_t d)
      : width(d), padded(rounded(keys, kKeyTile)), scale(1 / std::sqrt(static_cast<float>(d))) {
    const auto halves = [&](int64_t count) {
      return beside.like({count}, DType::kBF16, "attention scratch");
    };
    const auto floats = [&](int64_t count) {
      return beside.like({count}, DType::kF32, "attention scratch");
    };
    for (Tensor* t : {&k, &v}) *t = halves(padded * width);
    for (Tensor* t : {&q, &dy}) *t = halves(kRow * width);
    for (Tensor* t : {&p, &ds}) *t = halves(kKeyBlock * kRow);
    for (Tensor* t : {&s, &dp}) *t = floats(kKeyBlock * kRow);
    for (Tensor* t : {&max, &sum, &alpha, &lse, &delta, &first_keys, &last_keys}) {
      *t = floats(kRow);
    }
    gathered = floats(width * kRow);
  }

  // Scores of one block: s = scale log2(e) k q^T.
  Scores<float> score(int64_t first, int64_t key) {
    const Scores<float> block{.s = s.data<float>(),
                              .keys = std::min(kKeyBlock, rounded(end, kKeyTile) - key),
                              .lanes = kRow,
                              .offset = key - first,
                              .first = bounded ? first_keys.data<float>() : nullptr,
                              .last = both_ways ? last_keys.data<float>() : nullptr};
    products.run(
        {block.keys, kRow, width, false, true, false, scale * std::numbers::log2e_v<float>},
        k.data<Bf16>() + key * width, q.data<Bf16>(), block.s);
    return block;
  }

  // gathered[width, kRow] += a^T b for a [keys, width], b [keys, kRow].
  void gather(const Bf16* a, const Bf16* b, int64_t keys) {
    products.run({width, kRow, keys, true, false, true, 1}, a, b, gathered.data<float>());
  }

  // Takes what bounds the keys of `rows` queries from query i of `head` on, which is at key
  // `first`.
  void bound(const auto& head, int64_t i, int64_t first, int64_t rows) {
    bounded = head.first_key != nullptr;
    both_ways = head.last_key != nullptr;
    begin = bounded ? head.first_key[i] / kKeyTile * kKeyTile : 0;  // few sizes of blocks
    end = both_ways ? head.last_key[i + rows - 1] + 1 : first + rows;
    if (bounded) load_bounds(first_keys.data<float>(), head.first_key + i, rows, first);
    if (both_ways) load_bounds(last_keys.data<float>(), head.last_key + i, rows, first);
  }

  void attend(int64_t first);
  void attend_back(int64_t first);

  int64_t width, padded;
  float scale;
  Products products;
  Tensor k, v;      // [padded, width]
  Tensor q, dy;     // [kRow, width]
  Tensor p, ds;     // [kKeyBlock, kRow], as they enter products
  Tensor s, dp;     // the same, as they leave them
  Tensor gathered;  // [width, kRow]: y, or dq
  Tensor dk, dv;    // [padded, width], made by the first backward
  Tensor max, sum, alpha, lse, delta;
  Tensor first_keys, last_keys;  // [kRow], Scores::first if bounded, last if both_ways
  bool bounded = false, both_ways = false;
  int64_t begin = 0, end = 0;  // of the keys of these queries; it begins there or a little before
};

void Bf16Heads::State::attend(int64_t first) {
  gathered.fill_zero();
  sum.fill_zero();
  std::fill_n(max.data<float>(), kRow, -std::numeric_limits<float>::infinity());
  for (int64_t key = begin; key < end; key += kKeyBlock) {
    const Scores<float> block = score(first, key);
    if (softmax_step(block, max.data<float>(), sum.data<float>(), alpha.data<float>())) {
      scale_lanes(gathered.data<float>(), width, kRow, alpha.data<float>());
    }
    round(p.data<Bf16>(), block.s, block.keys * kRow);
    gather(v.data<Bf16>() + key * width, p.data<Bf16>(), block.keys);
  }
}

void Bf16Heads::State::attend_back(int64_t first) {
  gathered.fill_zero();
  for (int64_t key = begin; key < end; key += kKeyBlock) {
    const Scores<float> block = score(first, key);
    const Bf16* const keys = k.data<Bf16>() + key * width;
    products.run({block.keys, kRow, width, false, true, false, 1}, v.data<Bf16>() + key * width,
                 dy.data<Bf16>(), dp.data<float>());
    softmax_gradient(block, dp.data<float>(), lse.data<float>(), delta.data<float>());
    round(p.data<Bf16>(), block.s, block.keys * kRow);
    round(ds.data<Bf16>(), dp.data<float>(), block.keys * kRow);
    products.run({block.keys, width, kRow, false, false, true, 1}, p.data<Bf16>(), dy.data<Bf16>(),
                 dv.data<float>() + key * width);
    products.run({block.keys, width, kRow, false, false, true, scale}, ds.data<Bf16>(),
                 q.data<Bf16>(), dk.data<float>() + key * width);
    gather(keys, ds.data<Bf16>(), block.keys);
  }
}

bool Bf16Heads::fits(int64_t keys, int64_t width) {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  const bool dots = isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  return dots && keys > kKeyTile && width % 32 == 0;
}

Bf16Heads::Bf16Heads(const Tensor& beside, int64_t keys, int64_t width)
    : state_(std::make_unique<State>(beside, keys, width)) {}

Bf16Heads::~Bf16Heads() = default;

void Bf16Heads::forward(const HeadForward<Bf16>& head) {
  const OneThread serial;
  State& t = *state_;
  const int64_t keys = head.past + head.queries, filled = rounded(keys, kKeyTile);
  pack(t.k.data<Bf16>(), head.k, head.kv_stride, keys, filled, t.width);
  pack(t.v.data<Bf16>(), head.v, head.kv_stride, keys, filled, t.width);
  for (int64_t i = 0; i < head.queries; i += kRow) {
    const int64_t rows = std::min(kRow, head.queries - i);
    pack(t.q.data<Bf16>(), head.q + i * head.q_stride, head.q_stride, rows, kRow, t.width);
    t.bound(head, i, head.past + i, rows);
    t.attend(head.past + i);
    float* const inverse = t.alpha.data<float>();
    for (int64_t r = 0; r < kRow; ++r) {
      const float sum = t.sum.data<float>()[r];
      inverse[r] = 1 / sum;
      if (head.l == nullptr || r >= rows) continue;
      head.l[i + r] = (t.max.data<float>()[r] + std::log2(sum)) * std::numbers::ln2_v<float>;
    }
    scale_lanes(t.gathered.data<float>(), t.width, kRow, inverse);
    store_lanes(Rows<Bf16>{head.y + i * head.y_stride, head.y_stride, rows, t.width},
                t.gathered.data<float>(), false);
  }
}

void Bf16Heads::backward(const HeadBackward<Bf16>& head) {
  const OneThread serial;
  State& t = *state_;
  const int64_t tokens = head.tokens, stride = head.qkv_stride, filled = rounded(tokens, kKeyTile);
  pack(t.k.data<Bf16>(), head.k, stride, tokens, filled, t.width);
  pack(t.v.data<Bf16>(), head.v, stride, tokens, filled, t.width);
  if (t.dk.empty()) {
    for (Tensor* x : {&t.dk, &t.dv}) {
      *x = t.s.like({t.padded, t.width}, DType::kF32, "attention scratch");
    }
  }
  t.dk.fill_zero();
  t.dv.fill_zero();
  for (int64_t i = 0; i < tokens; i += kRow) {
    const int64_t rows = std::min(kRow, tokens - i);
    const Bf16* const dy = head.dy + i * head.y_stride;
    pack(t.q.data<Bf16>(), head.q + i * stride, stride, rows, kRow, t.width);
    pack(t.dy.data<Bf16>(), dy, head.y_stride, rows, kRow, t.width);
    t.lse.fill_zero();
    t.delta.fill_zero();
    dot_rows(t.delta.data<float>(),
             Rows<const Bf16>{head.y + i * head.y_stride, head.y_stride, rows, t.width},
             Rows<const Bf16>{dy, head.y_stride, rows, t.width});
    for (int64_t r = 0; r < rows; ++r) {
      t.lse.data<float>()[r] = head.l[i + r] * std::numbers::log2e_v<float>;
    }
    t.bound(head, i, i, rows);
    t.attend_back(i);
    std::fill_n(t.alpha.data<float>(), kRow, t.scale);
    scale_lanes(t.gathered.data<float>(), t.width, kRow, t.alpha.data<float>());
    store_lanes(Rows<Bf16>{head.dq + i * stride, stride, rows, t.width}, t.gathered.data<float>(),
                head.accumulate);
  }
  store_rows(Rows<Bf16>{head.dk, stride, tokens, t.width}, t.dk.data<float>(), t.width,
             head.accumulate);
  store_rows(Rows<Bf16>{head.dv, stride, tokens, t.width}, t.dv.data<float>(), t.width,
             head.accumulate);
}

}  // namespace anabranch::cpu
