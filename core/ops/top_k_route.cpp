#include "core/ops/top_k_route.h"

#include "core/base/build.h"

namespace anabranch {
namespace {

void check(const Tensor& logits, const TopKRule& rule) {
  AB_CHECK(logits.shape().rank() == 2 && logits.dtype() == accumulator_of(logits.dtype()),
           "[top_k_route] the logits are ", name_of(logits.dtype()), logits.shape(),
           " but need [rows, experts] of float32 or float64");
  AB_CHECK(rule.k >= 1 && rule.k <= logits.dim(1), "[top_k_route] k is ", rule.k, " of ",
           logits.dim(1), " experts");
  AB_CHECK(rule.capacity >= 0 && rule.pool_rows >= 0 &&
               (rule.pool_rows == 0 || logits.dim(0) % rule.pool_rows == 0),
           "[top_k_route] pools of ", rule.pool_rows, " rows do not divide ", logits.dim(0),
           " rows, or the capacity ", rule.capacity, " is negative");
  AB_CHECK(!rule.before || rule.pool_rows == 0 || rule.pool_rows == logits.dim(0),
           "[top_k_route] pools of ", rule.pool_rows, " rows, with rows elsewhere, for ",
           logits.dim(0), " rows here");
  AB_CHECK(logits.dim(0) * rule.k <= INT32_MAX, "[top_k_route] more slots than an int32 counts");
}

Tensor selected_logits(const Tensor& logits, const TopKRoute& route) {
  const int64_t E = logits.dim(1), S = route.plan.groups.rows();
  Tensor selected = logits.like({S}, logits.dtype(), "top_k_route.selected");
  const auto* row = route.plan.source.data<int32_t>();
  dispatch(logits.dtype(), [&]<class T>() {
    for (int64_t e = 0; e < E; ++e) {
      for (int64_t s = route.plan.groups.begin(e); s < route.plan.groups.end(e); ++s) {
        selected.data<T>()[s] = logits.data<T>()[row[s] * E + e];
      }
    }
  });
  return selected;
}

// Fills the route but its Vars; returns the logits of the slots.
Tensor forward(TopKRoute& route, Tensor& gates, const Tensor& s, const TopKRule& rule) {
  if (s.device().is_cpu()) {
    cpu::top_k(route.expert, s);
    cpu::assign_slots(route, rule, s.dim(1));
    cpu::top_k_gates(gates, s, route, rule.gate);
    return selected_logits(s, route);
  }
  if constexpr (build::kCuda) {
    cuda::top_k(route.expert, gates, s, rule.gate);
    return cuda::assign_slots(route, gates, s, rule);
  }
  AB_FAIL("[top_k_route] no kernel for this device in this build");
}

void backward(GradSink& dlogits, const Tensor* dgates, const Tensor* dselected,
              const Tensor& logits, const TopKRoute& route, GateForm form) {
  if (logits.device().is_cpu()) {
    return cpu::top_k_route_backward(dlogits, dgates, dselected, logits, route, form);
  }
  if constexpr (build::kCuda) {
    return cuda::top_k_route_backward(dlogits, dgates, dselected, logits, route, form);
  }
  AB_FAIL("[top_k_route] no kernel for this device in this build");
}

}  // namespace

Tensor served_before(const TopKRule& rule, const Tensor& counts) {
  Tensor before = rule.before(counts);
  AB_CHECK(before.dtype() == DType::kI64 && before.count() == counts.count() &&
               before.device() == counts.device(),
           "[top_k_route] what is served before is ", name_of(before.dtype()), before.shape(),
           " but needs int64", counts.shape(), " beside the logits");
  return before;
}

TopKRoute top_k_route(const Var& logits, const TopKRule& rule) {
  const Tensor& s = logits.value();
  check(s, rule);
  const int64_t M = s.dim(0);
  TopKRoute route;
  route.expert = s.like({M, rule.k}, DType::kI32, "top_k_route.expert");
  Tensor gates = s.like({M, rule.k}, s.dtype(), "top_k_route.gates");
  const Tensor selected = forward(route, gates, s, rule);
  if (logits.tape() == nullptr) {
    route.gates = gates;
    route.selected = selected;
    return route;
  }
  const auto to_logits = [logits, kept = route, form = rule.gate](Tape& t, std::span<Tensor> dys) {
    GradSink dlogits = t.grad(logits);
    backward(dlogits, dys[0].empty() ? nullptr : &dys[0], dys[1].empty() ? nullptr : &dys[1],
             logits.value(), kept, form);
  };
  const std::vector<Var> outputs =
      logits.tape()->record_many("top_k_route", {gates, selected}, {}, to_logits);
  route.gates = outputs[0];
  route.selected = outputs[1];
  return route;
}

}  // namespace anabranch
