#include "core/ops/embedding.h"

#include "core/base/build.h"

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

// `rows` beside the table; what the host can see of them is checked.
Tensor placed(const Tensor& rows, const Param& table, const char* what) {
  if (!rows.device().is_cpu()) return rows;
  check_rows(rows, table, what);
  return table.value.device().is_cpu() ? rows : rows.copy_in(table.value.pool(), "ids");
}

void forward(Tensor& y, const Tensor& ids, const Tensor& table, const Tensor& positions,
             const Tensor* position_table) {
  if (y.device().is_cpu()) {
    return cpu::embedding_forward(y, ids, table, positions, position_table);
  }
  if constexpr (build::kCuda) {
    return cuda::embedding_forward(y, ids, table, positions, position_table);
  }
  AB_FAIL("[embedding] no kernel for this device in this build");
}

void backward(GradSink& dtable, const Tensor& ids, const Tensor& dy) {
  if (dy.device().is_cpu()) return cpu::embedding_backward(dtable, ids, dy);
  if constexpr (build::kCuda) return cuda::embedding_backward(dtable, ids, dy);
  AB_FAIL("[embedding] no kernel for this device in this build");
}

}  // namespace

Var embedding(Tape* tape, const Tensor& some_ids, Param& table, const Tensor& some_positions,
              Param* position_table) {
  AB_CHECK(table.value.shape().rank() == 2, "[embedding] ", table.name, " is ", table.value.shape(),
           ", not a table of rows");
  const Tensor ids = placed(some_ids, table, "id");
  Tensor positions;
  const Tensor* second = nullptr;
  std::vector<Param*> params{&table};
  if (position_table != nullptr) {
    second = &position_table->value;
    AB_CHECK(second->shape().rank() == 2 && second->dim(1) == table.value.dim(1) &&
                 second->dtype() == table.value.dtype(),
             "[embedding] ", position_table->name, " is ", name_of(second->dtype()),
             second->shape(), " beside ", name_of(table.value.dtype()), table.value.shape());
    AB_CHECK(some_positions.count() == ids.count(), "[embedding] ", some_positions.count(),
             " positions for ", ids.count(), " ids");
    positions = placed(some_positions, *position_table, "position");
    params.push_back(position_table);
  }
  Tensor y = table.value.like({ids.count(), table.value.dim(1)}, table.value.dtype(), "embedding");
  forward(y, ids, table.value, positions, second);
  if (tape == nullptr) return y;
  const auto back = [ids, positions, &table, position_table](Tape& t, const Tensor& dy) {
    GradSink dtable = t.grad(table);
    backward(dtable, ids, dy);
    if (position_table != nullptr) {
      GradSink dpositions = t.grad(*position_table);
      backward(dpositions, positions, dy);
    }
  };
  return tape->record("embedding", y, params, back);
}

}  // namespace anabranch
