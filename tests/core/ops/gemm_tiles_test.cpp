#include "core/ops/gemm_tiles.h"

#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using cpu::GemmShape;
using cpu::TiledProduct;

// More rows, columns and inner elements than a tile has, none a whole number of them.
TEST(GemmTiles, IsTheProduct) {
  constexpr int64_t kM = 1100, kN = 2400, kK = 400;
  const Tensor a = test::random({kM, kK}, 1, DType::kF32), b = test::random({kK, kN}, 2, a.dtype());
  const Tensor a_turned = test::random({kK, kM}, 3, DType::kF32);
  for (const bool turned : {false, true}) {
    Tensor want({kM, kN}, DType::kF32), got = test::random({kM, kN}, 4, DType::kF32);
    want.copy_from(got);
    const Tensor& left = turned ? a_turned : a;
    gemm(want, left, b, {.transpose_a = turned, .accumulate = true});
    const GemmShape shape{kM, kN, kK, turned, false, true};
    cpu::gemm_tiles<float, float>({{got.data<float>(), left.data<float>(), b.data<float>(), shape}},
                                  nullptr);
    test::expect_near(got, test::values(want), test::op_tolerance(DType::kF32), "c");
  }
}

TEST(GemmTiles, ASymmetricProductIsMirrored) {
  constexpr int64_t kSide = 700, kK = 30;
  for (const DType type : {DType::kF32, DType::kF64}) {
    const Tensor a = test::random({kSide, kK}, 1, type);
    Tensor want({kSide, kSide}, type), got = test::full({kSide, kSide}, 7, type);
    gemm(want, a, a, {.transpose_b = true});
    const GemmShape shape{kSide, kSide, kK, false, true};
    dispatch(type, [&]<class T>() {
      using A = Accumulator<T>;
      if constexpr (std::is_same_v<T, A>) {
        cpu::gemm_tiles<T, T>({{got.data<T>(), a.data<T>(), a.data<T>(), shape, true}}, nullptr);
      }
    });
    test::expect_near(got, test::values(want), test::op_tolerance(type), "c");
  }
}

TEST(GemmTiles, NothingToDo) {
  cpu::gemm_tiles<float, float>({}, nullptr);
  cpu::gemm_tiles<float, float>({{nullptr, nullptr, nullptr, {0, 5, 3}}}, nullptr);
  float c[2] = {7, 7};
  cpu::gemm_tiles<float, float>({{c, nullptr, nullptr, {1, 2, 0}}}, nullptr);
  EXPECT_EQ(c[0] + c[1], 0);
}

}  // namespace
}  // namespace anabranch
