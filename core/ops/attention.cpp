#include "core/ops/attention.h"

#include <algorithm>

#include "core/base/build.h"

namespace anabranch {
namespace {

constexpr int64_t kMostBounded = int64_t{1} << 24U;  // what a float counts without gaps

// As the header says of first_key, or else of last_key.
void check_bound(const char* what, const Tensor& bound, int64_t batch, int64_t tokens, bool last) {
  if (bound.empty()) return;
  AB_CHECK(bound.dtype() == DType::kI32 && bound.shape() == Shape({batch, tokens}), "[attention] ",
           what, " is ", bound.shape(), " of ", name_of(bound.dtype()), " but needs [", batch, ", ",
           tokens, "] of i32");
  AB_CHECK(tokens <= kMostBounded, "[attention] ", what, " of ", tokens, " tokens; at most ",
           kMostBounded, " are supported");
  if (!bound.device().is_cpu()) return;  // reading it would stop the device
  const int32_t* const key = bound.data<int32_t>();
  for (int64_t i = 0; i < bound.count(); ++i) {
    const int64_t t = i % tokens, before = t == 0 ? 0 : key[i - 1];
    const int64_t lowest = last ? std::max(t, before) : before, highest = last ? tokens - 1 : t;
    AB_CHECK(key[i] >= lowest && key[i] <= highest, "[attention] ", what, " of token ", t,
             " of sequence ", i / tokens, " is ", key[i], "; expected ", lowest, " to ", highest);
  }
}

KeyBounds bounds_of(const Tensor& first_key, const Tensor& last_key) {
  if (last_key.empty() || !first_key.empty()) return {first_key, last_key};
  Tensor zeros = last_key.like(last_key.shape(), DType::kI32, "attention first_key");
  zeros.fill_zero();
  return {zeros, last_key};
}

void forward(Tensor& y, Tensor& lse, const Tensor& qkv, const KeyBounds& bounds) {
  if (qkv.device().is_cpu()) return cpu::attention_forward(y, lse, qkv, bounds);
  if constexpr (build::kCuda) return cuda::attention_forward(y, lse, qkv, bounds);
  AB_FAIL("[attention] no kernel for this device in this build");
}

void backward(GradSink& dqkv, const Tensor& dy, const Tensor& qkv, const KeyBounds& bounds,
              const Tensor& y, const Tensor& lse) {
  if (qkv.device().is_cpu()) return cpu::attention_backward(dqkv, dy, qkv, bounds, y, lse);
  if constexpr (build::kCuda) return cuda::attention_backward(dqkv, dy, qkv, bounds, y, lse);
  AB_FAIL("[attention] no kernel for this device in this build");
}

}  // namespace

Var attention(const Var& qkv, int64_t batch, int64_t heads, const Tensor& first_key,
              const Tensor& last_key) {
  const Tensor& x = qkv.value();
  AB_CHECK(batch > 0 && heads > 0, "[attention] batch is ", batch, " and heads ", heads,
           "; both must be positive");
  AB_CHECK(x.shape().rank() == 2 && x.dim(1) % (3 * heads) == 0, "[attention] qkv is ", x.shape(),
           " but needs [B*T, 3C] with C a multiple of ", heads, " heads");
  AB_CHECK(x.dim(0) % batch == 0, "[attention] qkv has ", x.dim(0),
           " rows, not a multiple of batch ", batch);
  const int64_t tokens = x.dim(0) / batch;
  check_bound("first_key", first_key, batch, tokens, false);
  check_bound("last_key", last_key, batch, tokens, true);
  const KeyBounds bounds = bounds_of(first_key, last_key);
  Tensor y = x.like({x.dim(0), x.dim(1) / 3}, x.dtype(), "attention");
  Tensor lse = x.like({batch, heads, tokens}, accumulator_of(x.dtype()), "attention lse");
  forward(y, lse, x, bounds);
  if (qkv.tape() == nullptr) return y;
  const auto back = [qkv, bounds, y, lse](Tape& t, const Tensor& dy) {
    if (!t.wants(qkv)) return;
    GradSink dqkv = t.grad(qkv);
    backward(dqkv, dy, qkv.value(), bounds, y, lse);
  };
  return qkv.tape()->record("attention", y, {}, back);
}

}  // namespace anabranch
