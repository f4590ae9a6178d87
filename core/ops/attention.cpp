#include "core/ops/attention.h"

namespace anabranch {
namespace {

constexpr int64_t kMostBounded = int64_t{1} << 24U;  // what a float counts without gaps

void check_first_key(const Tensor& first_key, int64_t batch, int64_t tokens) {
  if (first_key.empty()) return;
  AB_CHECK(first_key.dtype() == DType::kI32 && first_key.shape() == Shape({batch, tokens}),
           "[attention] first_key is ", first_key.shape(), " of ", name_of(first_key.dtype()),
           " but needs [", batch, ", ", tokens, "] of i32");
  AB_CHECK(tokens <= kMostBounded, "[attention] first_key of ", tokens, " tokens; at most ",
           kMostBounded, " are supported");
  if (!first_key.device().is_cpu()) return;  // reading it would stop the device
  const int32_t* const first = first_key.data<int32_t>();
  for (int64_t i = 0; i < first_key.count(); ++i) {
    const int64_t t = i % tokens, before = t == 0 ? 0 : first[i - 1];
    AB_CHECK(first[i] >= before && first[i] <= t, "[attention] first_key of token ", t,
             " of sequence ", i / tokens, " is ", first[i], "; expected ", before, " to ", t);
  }
}

void check_device(const Tensor& qkv) {
  AB_CHECK(qkv.device().is_cpu(), "[attention] no kernel for this device in this build");
}

void forward(Tensor& y, Tensor& lse, const Tensor& qkv, const Tensor& first_key) {
  check_device(qkv);
  cpu::attention_forward(y, lse, qkv, first_key);
}

void backward(GradSink& dqkv, const Tensor& dy, const Tensor& qkv, const Tensor& first_key,
              const Tensor& y, const Tensor& lse) {
  check_device(qkv);
  cpu::attention_backward(dqkv, dy, qkv, first_key, y, lse);
}

}  // namespace

Var attention(const Var& qkv, int64_t batch, int64_t heads, const Tensor& first_key) {
  const Tensor& x = qkv.value();
  AB_CHECK(batch > 0 && heads > 0, "[attention] batch is ", batch, " and heads ", heads,
           "; both must be positive");
  AB_CHECK(x.shape().rank() == 2 && x.dim(1) % (3 * heads) == 0, "[attention] qkv is ", x.shape(),
           " but needs [B*T, 3C] with C a multiple of ", heads, " heads");
  AB_CHECK(x.dim(0) % batch == 0, "[attention] qkv has ", x.dim(0),
           " rows, not a multiple of batch ", batch);
  const int64_t tokens = x.dim(0) / batch;
  check_first_key(first_key, batch, tokens);
  Tensor y = x.like({x.dim(0), x.dim(1) / 3}, x.dtype(), "attention");
  Tensor lse = x.like({batch, heads, tokens}, accumulator_of(x.dtype()), "attention lse");
  forward(y, lse, x, first_key);
  if (qkv.tape() == nullptr) return y;
  const auto back = [qkv, first_key, y, lse](Tape& t, const Tensor& dy) {
    if (!t.wants(qkv)) return;
    GradSink dqkv = t.grad(qkv);
    backward(dqkv, dy, qkv.value(), first_key, y, lse);
  };
  return qkv.tape()->record("attention", y, {}, back);
}

}  // namespace anabranch
