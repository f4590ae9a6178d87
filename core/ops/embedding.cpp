#include "core/ops/embedding.h"

namespace anabranch {
namespace {

void check_rows(const Tensor& rows, const Param& table, const char* what) {
  const auto* row = rows.data<int32_t>();
  for (int64_t n = 0; n < rows.count(); ++n) {
    if (row[n] < 0 || row[n] >= table.value.dim(0)) {
      throw data_error("[embedding] ", what, " ", n, " of the batch is ", row[n], " but ",
                       table.name, " has rows 0 to ", table.value.dim(0) - 1);
    }
  }
}

}  // namespace

Var embedding(Tape* tape, const Tensor& ids, Param& table, const Tensor& positions,
              Param* position_table) {
  AB_CHECK(table.value.shape().rank() == 2, "[embedding] ", table.name, " is ", table.value.shape(),
           ", not a table of rows");
  AB_CHECK(table.value.device().is_cpu(), "[embedding] no kernel for this device in this build");
  check_rows(ids, table, "id");
  const Tensor* second = nullptr;
  std::vector<Param*> params{&table};
  if (position_table != nullptr) {
    second = &position_table->value;
    AB_CHECK(second->shape().rank() == 2 && second->dim(1) == table.value.dim(1) &&
                 second->dtype() == table.value.dtype(),
             "[embedding] ", position_table->name, " is ", name_of(second->dtype()),
             second->shape(), " beside ", name_of(table.value.dtype()), table.value.shape());
    AB_CHECK(positions.count() == ids.count(), "[embedding] ", positions.count(), " positions for ",
             ids.count(), " ids");
    check_rows(positions, *position_table, "position");
    params.push_back(position_table);
  }
  Tensor y = table.value.like({ids.count(), table.value.dim(1)}, table.value.dtype(), "embedding");
  cpu::embedding_forward(y, ids, table.value, positions, second);
  if (tape == nullptr) return y;
  const auto backward = [ids, positions, &table, position_table](Tape& t, const Tensor& dy) {
    GradSink dtable = t.grad(table);
    cpu::embedding_backward(dtable, ids, dy);
    if (position_table != nullptr) {
      GradSink dpositions = t.grad(*position_table);
      cpu::embedding_backward(dpositions, positions, dy);
    }
  };
  return tape->record("embedding", y, params, backward);
}

}  // namespace anabranch
