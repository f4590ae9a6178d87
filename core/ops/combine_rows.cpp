#include "core/ops/combine_rows.h"

#include <optional>
#include <vector>

#include "core/base/build.h"
#include "core/ops/gather_rows.h"

namespace anabranch {
namespace {

bool is_none(const Var& piece) { return piece.value().shape().rank() == 0; }

void check(std::span<const Var> pieces, const Tensor& gates, const SlotPlan& plan) {
  int64_t S = 0;
  const Tensor* some = nullptr;
  for (const Var& piece : pieces) {
    const Tensor& z = piece.value();
    if (is_none(piece)) continue;
    if (some == nullptr) some = &z;
    AB_CHECK(z.shape().rank() == 2 && z.dim(1) == some->dim(1) && z.dtype() == some->dtype(),
             "[combine_rows] z is ", z.shape(), " beside ", some->shape());
    S += z.dim(0);
  }
  AB_CHECK(some != nullptr, "[combine_rows] all ", pieces.size(), " pieces are empty");
  AB_CHECK(plan.source.count() == S && plan.gate.count() == S, "[combine_rows] z has ", S,
           " rows but the plan has ", plan.source.count(), " slots and ", plan.gate.count(),
           " gates");
  AB_CHECK(gates.dtype() == accumulator_of(some->dtype()), "[combine_rows] the gates are ",
           name_of(gates.dtype()), " beside rows of ", name_of(some->dtype()));
  if (!some->device().is_cpu()) return;
  const auto* gate = plan.gate.data<int32_t>();
  for (int64_t s = 0; s < S; ++s) {
    AB_CHECK(gate[s] >= 0 && gate[s] < gates.count(), "[combine_rows] the gate of slot ", s, " is ",
             gate[s], " of ", gates.count());
  }
}

void fill_weights(Tensor& weight, const Tensor& gates, const Tensor& gate) {
  if (gates.device().is_cpu()) return cpu::slot_gates(weight, gates, gate);
  if constexpr (build::kCuda) return cuda::slot_gates(weight, gates, gate);
  AB_FAIL("[slot_gates] no kernel for this device in this build");
}

void forward(Tensor& y, const Tensor& weight, std::span<const Tensor> z, const SlotPlan& plan) {
  GradSink sum{y, false};
  if (y.device().is_cpu()) {
    const auto of = cpu::slots_of_rows("combine_rows", plan.source, plan.rows);
    return cpu::sum_slots(sum, z, &weight, of);
  }
  if constexpr (build::kCuda) {
    return cuda::sum_slots(sum, z, &weight, cuda::slots_of_rows(plan.source, plan.rows));
  }
  AB_FAIL("[combine_rows] no kernel for this device in this build");
}

void backward(GradSink* dz, GradSink* dgates, const Tensor& dy, const Tensor& z,
              const Tensor& weight, const SlotPlan& plan, int64_t first) {
  if (z.device().is_cpu()) {
    return cpu::combine_rows_backward(dz, dgates, dy, z, weight, plan, first);
  }
  if constexpr (build::kCuda) {
    return cuda::combine_rows_backward(dz, dgates, dy, z, weight, plan, first);
  }
  AB_FAIL("[combine_rows] no kernel for this device in this build");
}

}  // namespace

Tensor slot_gates(const Tensor& gates, const SlotPlan& plan) {
  Tensor weight = gates.like({plan.gate.count()}, gates.dtype(), "slot_gates");
  fill_weights(weight, gates, plan.gate);
  return weight;
}

Var combine_rows(const Var& z, const Var& gates, const SlotPlan& plan) {
  return combine_rows(std::span(&z, 1), gates, plan);
}

Var combine_rows(std::span<const Var> pieces, const Var& gates, const SlotPlan& plan) {
  check(pieces, gates.value(), plan);
  std::vector<Var> z;
  std::vector<Tensor> rows;
  Tape* tape = gates.tape();
  for (const Var& piece : pieces) {
    if (is_none(piece)) continue;
    z.push_back(piece);
    rows.push_back(piece.value());
    if (piece.tape() != nullptr) tape = piece.tape();
  }
  const Tensor& some = rows.front();
  Tensor y = some.like({plan.rows, some.dim(1)}, some.dtype(), "combine_rows");
  const Tensor weight = slot_gates(gates.value(), plan);
  forward(y, weight, rows, plan);
  if (tape == nullptr) return y;
  return tape->record("combine_rows", y, {}, [=](Tape& t, const Tensor& dy) {
    std::optional<GradSink> dgates;
    if (t.wants(gates)) dgates = t.grad(gates);
    int64_t first = 0;
    for (const Var& piece : z) {
      std::optional<GradSink> dz;
      if (t.wants(piece)) dz = t.grad(piece);
      backward(dz ? &*dz : nullptr, dgates ? &*dgates : nullptr, dy, piece.value(), weight, plan,
               first);
      if (dgates) dgates->accumulate = true;  // the next piece's gates are others
      first += piece.value().dim(0);
    }
  });
}

}  // namespace anabranch
