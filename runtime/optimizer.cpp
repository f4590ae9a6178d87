#include "runtime/optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/ops/adamw.h"
#include "core/ops/aurora.h"
#include "core/ops/muon.h"
#include "core/ops/rows.h"
#include "core/ops/squared_norm.h"
#include "core/tensor/element.h"

namespace anabranch {
namespace {

// A parameter's matrices [S, rows, columns].
Shape stacked(const Param& w) {
  const int64_t columns = w.shape[-1], rows = w.shape.count() / (columns * w.matrices);
  AB_CHECK(w.matrices * rows * columns == w.shape.count(), w.name, " of shape ", w.shape,
           " does not hold ", w.matrices, " equal matrices");
  return {w.matrices, rows, columns};
}

}  // namespace

Optimizer::Optimizer(FlatStore& store, const Config& config)
    : store_(store), config_(config.optim), rates_(config) {
  for (int b = 0; b < std::ssize(store_.buckets()); ++b) entries_.push_back(store_.entries_of(b));
  if (config_.matrix == MatrixOptimizer::kAdamw) return;
  const Tensor& grad = store_.buckets().front().grad;
  if (grad.device().is_cuda()) {
    rejected_there_ = grad.like({1}, DType::kF64, "rejected");
    rejected_there_.fill_zero();
  }
  if (config_.matrix != MatrixOptimizer::kMuon) return;
  for (const FlatStore::Entry& entry : store_.entries()) {
    const Param& w = *entry.param;
    if (w.owner != Owner::kMatrix) continue;
    const Shape s = stacked(w);
    const int64_t here = entry.own.count > 0 ? s[0] : 0;
    Tensor scales = w.master.like({here, std::max(s[1], s[2])}, w.master.dtype(), "moments");
    scales.fill_zero();
    scales_.emplace(&w, scales);
  }
}

void Optimizer::squares(const Tensor& to) const {
  int64_t i = 0;
  for (const Bucket& bucket : store_.buckets()) {
    Tensor square = to.view(i++, {1});
    squared_norm(square, bucket.grad.view(bucket.own.begin, {bucket.own.count}));
  }
}

Tensor Optimizer::squares() const {
  const Tensor all =
      store_.buckets().front().grad.like({std::ssize(store_.buckets())}, DType::kF64, "norms");
  squares(all);
  return all.on_host();
}

double Optimizer::grad_norm() const {
  const Tensor all = squares();
  const std::span<const double> squares = all.span<double>();
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

double Optimizer::grad_norm_of_rows(const Mesh& mesh) const {
  std::vector<double> common, own;  // of what every rank has, and of what only some have
  for (const FlatStore::Entry& entry : store_.entries()) {
    const Tensor& grad = entry.param->grad;
    auto& to = entry.param->reduce == ReduceGroup::kAll ? common : own;
    for (int64_t row = 0; row < grad.dim(0); ++row) {
      to.push_back(squared_norm(rows_of(grad, row, 1)));
    }
  }
  Tensor all({mesh.shape().model * std::ssize(own)}, DType::kF64);
  mesh.model().all_gather(all, Tensor::of<double>({std::ssize(own)}, own)).wait();
  common.insert(common.end(), all.span<double>().begin(), all.span<double>().end());
  // By size, as ranks have them in other orders; by bits, which order what is no number, too.
  std::ranges::sort(common, {}, [](double square) { return std::bit_cast<uint64_t>(square); });
  return std::sqrt(std::accumulate(common.begin(), common.end(), 0.0));
}

double Optimizer::grad_norm(const Mesh& mesh) const {
  return grad_norm(mesh, squares().span<double>());
}

double Optimizer::grad_norm(const Mesh& mesh, std::span<const double> squares) const {
  if (store_.lanes() > 1) return grad_norm_of_rows(mesh);
  const bool sharded = std::ranges::any_of(store_.buckets(), &Bucket::sharded);
  double common = 0, own = 0;  // of what every rank has, and of what only some have
  for (size_t b = 0; b < squares.size(); ++b) {
    const Bucket& bucket = store_.buckets()[b];
    const bool everywhere = bucket.reduce == ReduceGroup::kAll && !bucket.sharded();
    (everywhere ? common : own) += squares[b];
  }
  Tensor sum = Tensor::of<double>({1}, {own});
  // Where nothing is sharded, ranks along the data axis have the same.
  (sharded ? mesh.all() : mesh.model()).all_reduce_sum(sum).wait();
  return std::sqrt(common + *sum.data<double>());
}

void Optimizer::count_rejected() {
  if (!rejected_there_.empty()) hear_rejected(element(rejected_there_));
}

void Optimizer::tell_rejected(Tensor& figure) const {
  if (!rejected_there_.empty()) figure.copy_from(rejected_there_);
}

void Optimizer::hear_rejected(double figure) {
  if (!rejected_there_.empty()) rejected_ = std::llround(figure);
}

void Optimizer::step(int64_t step, double grad_norm,
                     const std::function<void(int bucket)>& updated) {
  // As PyTorch's clip_grad_norm_, so that runs can be compared digit by digit.
  constexpr double kClipEps = 1e-6;
  const double scale = config_.clip > 0 ? std::min(config_.clip / (grad_norm + kClipEps), 1.0) : 1;
  ++updates_;
  bool kappa_moves = false;
  for (int bucket = static_cast<int>(entries_.size()); bucket-- > 0;) {
    for (const FlatStore::Entry& entry : entries_[static_cast<size_t>(bucket)]) {
      const Rate rate = rates_.of(*entry.param, step);
      if (rate.frozen) continue;
      // Counted alike on all ranks, whoever owns it.
      if (entry.param->role == Role::kKappa && !std::exchange(kappa_moves, true)) ++kappa_updates_;
      if (entry.own.count > 0) step_entry(entry, rate, scale);
    }
    if (updated) updated(bucket);
  }
}

void Optimizer::step_entry(const FlatStore::Entry& entry, const Rate& rate, double grad_scale) {
  if (entry.param->owner == Owner::kMatrix) {
    step_matrix(entry, rate, grad_scale);
  } else {
    step_adamw(entry, rate, grad_scale);
  }
}

void Optimizer::step_adamw(const FlatStore::Entry& entry, const Rate& rate, double grad_scale) {
  Param& w = *entry.param;
  AdamwStep step{rate.lr,     rate.beta1,        config_.beta2,
                 config_.eps, rate.weight_decay, w.role == Role::kKappa ? kappa_updates_ : updates_,
                 grad_scale};
  Tensor m = store_.m(entry), v = store_.v(entry);
  const Tensor grad = w.grad.view(entry.own.begin, {entry.own.count});
  Tensor value = w.value.view(entry.own.begin, {entry.own.count});
  adamw(w.master, m, v, grad, w.value.shares(w.master) ? nullptr : &value, step);
}

void Optimizer::step_matrix(const FlatStore::Entry& entry, const Rate& rate, double grad_scale) {
  Param& w = *entry.param;
  const Shape shape = stacked(w);
  Tensor master = w.master.reshape(shape), m = store_.m(entry).reshape(shape);
  Tensor rounded = w.value.reshape(shape);
  Tensor* value = w.value.shares(w.master) ? nullptr : &rounded;
  const Tensor grad = w.grad.reshape(shape);
  Tensor* there = rejected_there_.empty() ? nullptr : &rejected_there_;
  if (config_.matrix == MatrixOptimizer::kMuon) {
    MuonStep step;
    step.lr = rate.lr;
    step.momentum = rate.beta1;
    step.weight_decay = rate.weight_decay;
    step.grad_scale = grad_scale;
    step.compute = w.value.dtype();
    rejected_ += muon(master, m, scales_.at(&w), grad, value, step, there);
    return;
  }
  AuroraStep step;
  step.lr = rate.lr;
  step.momentum = rate.beta1;
  step.weight_decay = rate.weight_decay;
  step.iterations = static_cast<int>(config_.aurora_rounds);
  step.beta = config_.aurora_balance;
  step.shape_scale = config_.matrix_scale == MatrixScale::kRms ? AuroraStep::ShapeScale::kRms
                                                               : AuroraStep::ShapeScale::kAspect;
  step.grad_scale = grad_scale;
  step.compute = w.value.dtype();
  step.form = PolarForm::simple_quintic(static_cast<int>(config_.polar_steps));
  rejected_ += aurora(master, m, grad, value, step, there);
}

Tensor Optimizer::scales(const Param& w) const {
  const auto found = scales_.find(&w);
  return found == scales_.end() ? Tensor() : found->second;
}

std::vector<double> Optimizer::counts() const {
  return {static_cast<double>(updates_), static_cast<double>(kappa_updates_)};
}

void Optimizer::set_counts(const std::vector<double>& counts) {
  updates_ = static_cast<int64_t>(counts.front());
  kappa_updates_ = counts.size() > 1 ? static_cast<int64_t>(counts[1]) : 0;
}

}  // namespace anabranch
