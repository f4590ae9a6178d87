#include "core/ops/stream_tree.h"

#include <vector>

#include "core/base/tree_sum.h"
#include "core/ops/columns.h"
#include "core/tensor/accumulate.h"

namespace anabranch {
namespace {

// The elements of stream k of a tensor [N, ...], as of one stream.
Tensor of_stream(const Tensor& all, int64_t k) {
  std::vector<int64_t> extents(all.shape().begin(), all.shape().end());
  extents.front() = 1;
  const int64_t size = all.count() / all.dim(0);
  return all.view(k * size, Shape(extents.begin(), extents.end()));
}

// Adds up one tensor for each stream.
class Sum {
 public:
  void push(const Tensor& term) {
    partial_.resize(tree_.top());
    partial_.push_back(term);
    tree_.push([this](size_t i) { add(i); });
  }

  Tensor result() {
    tree_.finish([this](size_t i) { add(i); });
    return partial_.front();
  }

 private:
  void add(size_t i) { accumulate(partial_[i], partial_[i + 1]); }

  TreeSum tree_;
  std::vector<Tensor> partial_;
};

void run_backward(Tape& t, const Tensor& dy, const Var& s, const Var& g, Param& w, Param& b,
                  cpu::StreamBackward backward) {
  const Tensor& gates = g.value();
  const GradSink dw = t.grad(w), db = t.grad(b);
  Tensor dg = gates.like("gradient"), column = gates.like({gates.dim(0), 1}, dg.dtype(), "gates");
  Sum sum;
  for (int64_t k = 0; k < gates.dim(1); ++k) {
    GradSink ds_k{s.value().like("gradient"), false}, dg_k{column.like("gradient"), false};
    cpu::StreamGradients to{
        &ds_k, &dg_k, {of_stream(dw.out, k), dw.accumulate}, {of_stream(db.out, k), db.accumulate}};
    cpu::copy_columns(column, gates, k);
    backward(to, dy, s.value(), column, of_stream(w.value, k), of_stream(b.value, k));
    cpu::put_columns(dg, dg_k.out, k, gates.dim(1));
    sum.push(ds_k.out);
  }
  // Added at once to what is there: as the gradients are that come home from other ranks.
  t.give(s, sum.result());
  t.give(g, dg);
}

}  // namespace

Var stream_tree(const char* op, const Var& s, const Var& g, Param& w, Param& b,
                const std::function<void(Tensor& y, const Tensor& s, const Tensor& g,
                                         const Tensor& w, const Tensor& b)>& forward,
                cpu::StreamBackward backward) {
  AB_CHECK(s.dtype() == accumulator_of(s.dtype()), "[", op, "] no tree of streams of ",
           name_of(s.dtype()));
  AB_CHECK(s.value().device().is_cpu(), "[", op, "] trees of streams are added on a CPU only");
  const Tensor& gates = g.value();
  Tensor column = gates.like({gates.dim(0), 1}, gates.dtype(), "gates");
  Sum sum;
  for (int64_t k = 0; k < gates.dim(1); ++k) {
    Tensor y = s.value().like({s.dim(0), w.value.dim(1)}, s.dtype(), op);
    cpu::copy_columns(column, gates, k);
    forward(y, s.value(), column, of_stream(w.value, k), of_stream(b.value, k));
    sum.push(y);
  }
  const Tensor y = sum.result();
  Tape* tape = tape_of(s, g);
  if (tape == nullptr) return y;
  return tape->record(op, y, {&w, &b}, [s, g, &w, &b, backward](Tape& t, const Tensor& dy) {
    run_backward(t, dy, s, g, w, b, backward);
  });
}

}  // namespace anabranch
