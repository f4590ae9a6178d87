// What routers decided, read from any device.
#pragma once

#include <vector>

#include "core/ops/top_k_route.h"
#include "tests/support/devices.h"

namespace anabranch::test {

template <class T>
std::vector<T> elements(const Tensor& t) {
  if (t.device().is_cuda()) return elements<T>(t.copy_in(nullptr));
  return {t.data<T>(), t.data<T>() + t.count()};
}

inline std::vector<int32_t> ints(const Tensor& t) { return elements<int32_t>(t); }

inline std::vector<int64_t> offsets(const Groups& groups) {
  return groups.on_host() ? groups.offsets : elements<int64_t>(groups.on_device);
}

inline std::vector<int64_t> demand(const TopKRoute& route) {
  return elements<int64_t>(route.demand);
}

// The slots that are used; checks that the others say so.
inline std::vector<int32_t> used(const SlotPlan& plan, const Tensor& of_slots) {
  std::vector<int32_t> all = ints(of_slots);
  const auto count = static_cast<size_t>(offsets(plan.groups).back());
  for (size_t s = count; s < all.size(); ++s) {
    AB_CHECK(all[s] == -1, "slot ", s, " of ", count, " is ", all[s]);
  }
  all.resize(count);
  return all;
}

// The same plan in a device's memory.
inline SlotPlan place(const TestDevice& device, SlotPlan plan) {
  plan.source = device.place(plan.source);
  plan.gate = device.place(plan.gate);
  return plan;
}

}  // namespace anabranch::test
