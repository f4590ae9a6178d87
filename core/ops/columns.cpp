#include "core/ops/columns.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void copy_columns(Tensor& part, const Tensor& whole, int64_t first) {
  if (whole.device().is_cpu()) return cpu::copy_columns(part, whole, first);
  if constexpr (build::kCuda) return cuda::copy_columns(part, whole, first);
  AB_FAIL("[columns] no kernel for this device in this build");
}

void put_columns(Tensor& whole, const Tensor& part, int64_t k, int64_t parts) {
  if (whole.device().is_cpu()) return cpu::put_columns(whole, part, k, parts);
  if constexpr (build::kCuda) return cuda::put_columns(whole, part, k, parts);
  AB_FAIL("[columns] no kernel for this device in this build");
}

void widen_columns(Tensor& whole, const Tensor& part, int64_t first) {
  if (whole.device().is_cpu()) return cpu::widen_columns(whole, part, first);
  if constexpr (build::kCuda) return cuda::widen_columns(whole, part, first);
  AB_FAIL("[columns] no kernel for this device in this build");
}

Tensor joined(std::span<const Tensor> parts, const Tensor& like, const char* tag) {
  const auto K = std::ssize(parts);
  Tensor whole = like.like({like.dim(0), K * like.dim(1)}, like.dtype(), tag);
  for (int64_t k = 0; k < K; ++k) put_columns(whole, parts[static_cast<size_t>(k)], k, K);
  return whole;
}

std::vector<Tensor> parted(const Tensor& whole, int64_t parts, const char* tag) {
  std::vector<Tensor> all;
  for (int64_t k = 0; k < parts; ++k) {
    all.push_back(whole.like({whole.dim(0), whole.dim(1) / parts}, whole.dtype(), tag));
    copy_columns(all.back(), whole, k * all.back().dim(1));
  }
  return all;
}

}  // namespace

Var take_columns(const Var& x, int64_t first, int64_t count) {
  AB_CHECK(x.shape().rank() == 2 && first >= 0 && count >= 1 && first + count <= x.dim(1),
           "[take_columns] x is ", x.shape(), ", of which ", count, " columns from ", first,
           " on are wanted");
  if (count == x.dim(1)) return x;
  Tensor y = x.value().like({x.dim(0), count}, x.dtype(), "take_columns");
  copy_columns(y, x.value(), first);
  if (x.tape() == nullptr) return y;
  return x.tape()->record("take_columns", y, {}, [x, first](Tape& t, const Tensor& dy) {
    Tensor dx = x.value().like("gradient");
    widen_columns(dx, dy, first);
    t.give(x, dx);
  });
}

std::vector<Var> split_columns(const Var& x, int64_t parts) {
  AB_CHECK(x.shape().rank() == 2 && parts >= 1 && x.dim(1) % parts == 0, "[split_columns] x is ",
           x.shape(), ", not of ", parts, " parts");
  std::vector<Tensor> ys = parted(x.value(), parts, "split_columns");
  if (x.tape() == nullptr) return {ys.begin(), ys.end()};
  return x.tape()->record_many("split_columns", std::move(ys), {},
                               [x, parts](Tape& t, std::span<Tensor> dys) {
                                 if (!t.wants(x)) return;
                                 Tensor dx = x.value().like("gradient");
                                 for (int64_t k = 0; k < parts; ++k) {
                                   put_columns(dx, dys[static_cast<size_t>(k)], k, parts);
                                 }
                                 t.give(x, dx);
                               });
}

Var join_columns(std::span<const Var> parts) {
  AB_CHECK(!parts.empty() && parts[0].shape().rank() == 2, "[join_columns] no parts");
  std::vector<Tensor> values;
  Tape* tape = nullptr;
  for (const Var& part : parts) {
    AB_CHECK(part.shape() == parts[0].shape() && part.dtype() == parts[0].dtype(),
             "[join_columns] parts of ", parts[0].shape(), " and ", part.shape());
    values.push_back(part.value());
    if (tape == nullptr) tape = part.tape();
  }
  Tensor y = joined(values, values[0], "join_columns");
  if (tape == nullptr) return y;
  const auto back = [inputs = std::vector<Var>(parts.begin(), parts.end())](Tape& t,
                                                                            const Tensor& dy) {
    const std::vector<Tensor> ds = parted(dy, std::ssize(inputs), "gradient");
    for (size_t k = 0; k < inputs.size(); ++k) t.give(inputs[k], ds[k]);
  };
  return tape->record("join_columns", y, {}, back);
}

}  // namespace anabranch
