// Routings of every kind, for tests of what travels.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/tensors.h"

namespace anabranch::test {

// Which of `rows` rows each of `experts` experts takes, and how many rows each rank has.
struct Plan {
  const char* name;
  int64_t experts;
  std::vector<int64_t> rows_of;
  Tensor mask;  // [rows, E]

  [[nodiscard]] int64_t first(int rank) const {
    return std::accumulate(rows_of.begin(), rows_of.begin() + rank, int64_t{0});
  }

  [[nodiscard]] int64_t rows() const { return first(static_cast<int>(std::ssize(rows_of))); }

  [[nodiscard]] Tensor mask_of(int rank) const {
    return mask.view(first(rank) * experts, {rows_of[static_cast<size_t>(rank)], experts});
  }

  [[nodiscard]] bool takes(int64_t row, int64_t e) const {
    return mask.data<uint8_t>()[row * experts + e] != 0;
  }
};

template <class Takes>
Plan plan_of(const char* name, int64_t experts, std::vector<int64_t> rows_of, const Takes& takes) {
  Plan plan{name, experts, std::move(rows_of), {}};
  plan.mask = Tensor({plan.rows(), experts}, DType::kU8);
  for (int64_t i = 0; i < plan.mask.count(); ++i) {
    plan.mask.data<uint8_t>()[i] = takes(i / experts, i % experts) ? 1 : 0;
  }
  return plan;
}

inline std::vector<int64_t> even(int ranks, int64_t rows) {
  return std::vector<int64_t>(static_cast<size_t>(ranks), rows);
}

inline std::vector<Plan> plans(int ranks) {
  const auto random = [](uint32_t seed, double share) {
    return [=](int64_t row, int64_t e) {
      return uniform_float(philox(seed, static_cast<uint64_t>(row * 97 + e))[0]) < share;
    };
  };
  std::vector<int64_t> falling;  // the last rank has none
  for (int r = ranks - 1; r >= 0; --r) falling.push_back(int64_t{4} * r);
  std::vector<Plan> all;
  all.push_back(plan_of("random", 6, even(ranks, 9), random(1, 0.4)));
  all.push_back(plan_of("uneven experts", 5, even(ranks, 7), random(2, 0.5)));
  all.push_back(plan_of("all", 4, even(ranks, 3), [](auto, auto) { return true; }));
  all.push_back(plan_of("none", 4, even(ranks, 3), [](auto, auto) { return false; }));
  all.push_back(plan_of("one expert", 4, even(ranks, 5), [](auto, int64_t e) { return e == 1; }));
  all.push_back(plan_of("fewer rows than experts", 9, even(ranks, 1), random(3, 0.2)));
  if (ranks > 1) {
    all.push_back(plan_of("a rank without rows", 4, falling, random(4, 0.5)));
    all.push_back(plan_of("rows of one rank alone", 4, even(ranks, 4),
                          [](int64_t row, int64_t e) { return row < 4 && e != 2; }));
  }
  return all;
}

}  // namespace anabranch::test
