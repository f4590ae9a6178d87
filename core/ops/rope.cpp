#include "core/ops/rope.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void turn(Tensor& y, const Tensor& x, const Tensor& positions, const RopeForm& form, bool back) {
  if (x.device().is_cpu()) return cpu::rope(y, x, positions, form, back);
  if constexpr (build::kCuda) return cuda::rope(y, x, positions, form, back);
  AB_FAIL("[rope] no kernel for this device in this build");
}

}  // namespace

Var rope(const Var& qkv, const Tensor& positions, const RopeForm& form) {
  AB_CHECK(form.head_dim > 0 && form.head_dim % 2 == 0, "[rope] the head width is ", form.head_dim,
           " but must be even");
  const int64_t width = (form.heads_q + 2 * form.heads_kv) * form.head_dim;
  AB_CHECK(qkv.shape().rank() == 2 && qkv.dim(1) == width, "[rope] qkv is ", qkv.shape(), " but ",
           form.heads_q, " + 2 * ", form.heads_kv, " heads of ", form.head_dim, " need [N, ", width,
           "]");
  AB_CHECK(positions.shape() == Shape{qkv.dim(0)} && positions.dtype() == DType::kI32,
           "[rope] positions are ", name_of(positions.dtype()), positions.shape(),
           " but must be int32[", qkv.dim(0), "]");
  Tensor y = qkv.value().like("rope");
  turn(y, qkv.value(), positions, form, false);
  if (qkv.tape() == nullptr) return y;
  const Var to({}, qkv.tape(), qkv.id());  // its value is not needed again
  return qkv.tape()->record_many("rope", {y}, {}, [=](Tape& t, std::span<Tensor> dys) {
    if (!t.wants(to)) return;
    Tensor dx = dys[0].unique() ? dys[0] : dys[0].like("gradient");
    turn(dx, dys[0], positions, form, true);
    t.give(to, dx);
  })[0];
}

}  // namespace anabranch
