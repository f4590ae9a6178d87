#include "core/ops/combine_rows.h"

#include <optional>

#include "core/ops/gather_rows.h"

namespace anabranch {
namespace {

void check(const Tensor& z, const Tensor& gates, const SlotPlan& plan) {
  AB_CHECK(
      z.shape().rank() == 2 && plan.source.count() == z.dim(0) && plan.gate.count() == z.dim(0),
      "[combine_rows] z is ", z.shape(), " but the plan has ", plan.source.count(), " slots and ",
      plan.gate.count(), " gates");
  AB_CHECK(gates.dtype() == accumulator_of(z.dtype()), "[combine_rows] the gates are ",
           name_of(gates.dtype()), " beside rows of ", name_of(z.dtype()));
  AB_CHECK(z.device().is_cpu(), "[combine_rows] no kernel for this device in this build");
  const auto* gate = plan.gate.data<int32_t>();
  for (int64_t s = 0; s < z.dim(0); ++s) {
    AB_CHECK(gate[s] >= 0 && gate[s] < gates.count(), "[combine_rows] the gate of slot ", s, " is ",
             gate[s], " of ", gates.count());
  }
}

}  // namespace

Var combine_rows(const Var& z, const Var& gates, const SlotPlan& plan) {
  check(z.value(), gates.value(), plan);
  Tensor y = z.value().like({plan.rows, z.dim(1)}, z.dtype(), "combine_rows");
  Tensor weight = gates.value().like({z.dim(0)}, gates.dtype(), "combine_rows.gates");
  cpu::slot_gates(weight, gates.value(), plan.gate);
  GradSink sum{y, false};
  cpu::sum_slots(sum, z.value(), &weight,
                 cpu::slots_of_rows("combine_rows", plan.source, plan.rows));
  Tape* tape = tape_of(z, gates);
  if (tape == nullptr) return y;
  return tape->record("combine_rows", y, {}, [=](Tape& t, const Tensor& dy) {
    std::optional<GradSink> dz, dgates;
    if (t.wants(z)) dz = t.grad(z);
    if (t.wants(gates)) dgates = t.grad(gates);
    cpu::combine_rows_backward(dz ? &*dz : nullptr, dgates ? &*dgates : nullptr, dy, z.value(),
                               weight, plan);
  });
}

}  // namespace anabranch
