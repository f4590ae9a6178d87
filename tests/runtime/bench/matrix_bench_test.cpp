// Which matrices a matrix optimizer has, and what their products take.
#include "runtime/bench/matrix_bench.h"

#include <gtest/gtest.h>

#include "runtime/models/registry.h"
#include "runtime/training_state.h"

namespace anabranch {
namespace {

Config small(MatrixOptimizer matrix) {
  Config c;
  c.model.type = ModelType::kKappaMoe;
  c.model.layers = 2;
  c.model.width = 16;
  c.model.heads = 2;
  c.model.context = 8;
  c.model.ffn_width = 16;
  c.model.kappa.experts = 4;
  c.model.kappa.moe_first = 1;
  c.optim.matrix = matrix;
  return c;
}

std::vector<OwnedMatrices> owned(const Config& c) {
  const auto model = make_model(c, 40);
  TrainingState state(*model, c, FlatStore::Options{}, nullptr);
  return owned_matrices(state.store(), c.optim);
}

TEST(MatrixBench, CountsMatricesByShape) {
  // Squares: q, k, v and projection of two layers; gate, up and out of the dense part and of four
  // experts. A router and a value gate.
  const std::vector<OwnedMatrices> muon = owned(small(MatrixOptimizer::kMuon));
  int64_t squares = 0, others = 0, rounds = 0;
  for (const OwnedMatrices& m : muon) {
    (m.rows == 16 && m.cols == 16 ? squares : others) += m.count;
    rounds += m.rounds;
  }
  EXPECT_EQ(squares, 2 * 4 + 3 + 4 * 3);
  EXPECT_EQ(others, 2);
  EXPECT_EQ(rounds, 3);  // three shapes, once each
  for (const OwnedMatrices& m : owned(small(MatrixOptimizer::kAurora))) {
    EXPECT_EQ(m.rounds, m.rows == m.cols ? 1 : 2);
  }
  EXPECT_TRUE(owned(small(MatrixOptimizer::kAdamw)).empty());
}

TEST(MatrixBench, CountsOperations) {
  // Of 2 x 3: a Gram matrix 2 2 3, a square 2 2 2, the last 2 2 3; two operations each.
  EXPECT_EQ(polar_flops(2, 3, 1), 2 * (12 + 8 + 12));
  EXPECT_EQ(polar_flops(3, 2, 5), 5 * polar_flops(2, 3, 1));
}

TEST(MatrixBench, TimesThem) {
  const Config c = small(MatrixOptimizer::kAurora);
  const auto pool = std::make_shared<Pool>(Device{});
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const MatrixRate rate = bench_matrices({{3, 4, 6, 2}, {1, 5, 5, 1}}, c.optim, type, pool);
    const auto steps = static_cast<size_t>(c.optim.polar_steps);
    EXPECT_EQ(rate.flops, 6 * polar_flops(4, 6, steps) + polar_flops(5, 5, steps));
    EXPECT_GT(rate.of_bare(), 0);
  }
}

}  // namespace
}  // namespace anabranch
