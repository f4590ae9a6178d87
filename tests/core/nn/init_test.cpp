#include "core/nn/init.h"

#include "core/base/parallel_for.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

Param made(const std::string& name, Shape shape, Init init, DType compute, uint64_t seed = 1) {
  Param w(name, shape, init);
  w.compute = compute;
  allocate(w, accumulator_of(compute));
  initialise(w, seed);
  return w;
}

TEST(Init, NormalIsBoxMullerOfTheKeyedWords) {
  const Param w = made("w", {2, 3}, Init::normal(0.5F), DType::kF64, 9);
  const uint64_t key = mix_keys(9, name_key("w"));
  const PhiloxBlock words = philox(key, 1);
  const auto pair = normal_pair(words[0], words[1]);
  test::expect_near(w.value.view(4, {2}), {0.5 * pair[0], 0.5 * pair[1]}, test::kExact, "w");
}

TEST(Init, HasTheMomentsAskedFor) {
  constexpr int64_t kCount = 1 << 20;
  const auto moments = [](const Tensor& t) {
    double sum = 0, squares = 0;
    for (const double v : t.span<double>()) {
      sum += v;
      squares += v * v;
    }
    return std::pair(sum / kCount, squares / kCount);
  };
  const double error = 5 / std::sqrt(static_cast<double>(kCount));
  const auto normal = moments(made("n", {kCount}, Init::normal(2), DType::kF64).value);
  EXPECT_NEAR(normal.first, 0, 2 * error);
  EXPECT_NEAR(normal.second, 4, 4 * std::sqrt(2.0) * error);
  const Param u = made("u", {kCount}, Init::uniform(3), DType::kF64);
  const auto uniform = moments(u.value);
  EXPECT_NEAR(uniform.first, 0, 3 * error);
  EXPECT_NEAR(uniform.second, 3, 3 * error);
  for (const double v : u.value.span<double>()) ASSERT_TRUE(-3 <= v && v < 3);
}

TEST(Init, ConstantsAreConstant) {
  for (const double v : test::values(made("w", {5}, Init::constant(1), DType::kF32).value)) {
    EXPECT_EQ(v, 1);
  }
}

TEST(Init, TypesAreRoundingsOfOneAnother) {
  const Init init = Init::normal(0.02F);
  const Param f64 = made("w", {33, 7}, init, DType::kF64),
              f32 = made("w", {33, 7}, init, DType::kF32),
              bf16 = made("w", {33, 7}, init, DType::kBF16);
  EXPECT_TRUE(f32.value.shares(f32.master));
  EXPECT_FALSE(bf16.value.shares(bf16.master));
  EXPECT_TRUE(test::same_bytes(f32.master, test::cast(f64.master, DType::kF32)));
  EXPECT_TRUE(test::same_bytes(bf16.master, f32.master));
  EXPECT_TRUE(test::same_bytes(bf16.value, test::cast(f32.master, DType::kBF16)));
}

TEST(Init, SlicesAndThreadsMakeTheSameTensor) {
  const int before = thread_count();
  const Init init = Init::normal(1);
  set_thread_count(1);
  const Param whole = made("w", {700, 13}, init, DType::kF32);
  for (const int threads : {2, 5}) {
    set_thread_count(threads);
    EXPECT_TRUE(test::same_bytes(made("w", {700, 13}, init, DType::kF32).value, whole.value));
  }
  set_thread_count(before);
  Param slice("w", {101, 13}, init);
  slice.global_shape = whole.shape;
  slice.slice_begin = 599;
  allocate(slice, DType::kF32);
  initialise(slice, 1);
  EXPECT_TRUE(test::same_bytes(slice.value, whole.value.view(slice.slice_begin * 13, slice.shape)));
}

TEST(Init, NamesAndSeedsMatter) {
  const Init init = Init::uniform(1);
  const Param a = made("a", {50}, init, DType::kF32);
  EXPECT_FALSE(test::same_bytes(a.value, made("b", {50}, init, DType::kF32).value));
  EXPECT_FALSE(test::same_bytes(a.value, made("a", {50}, init, DType::kF32, 2).value));
}

TEST(Init, ComputeTypesOfARun) {
  Param matrix("m", {2, 3}, Init::constant(0)), vector("v", {3}, Init::constant(0));
  const auto types = [&](DType type) {
    set_compute(matrix, type);
    set_compute(vector, type);
    return std::pair(matrix.compute, vector.compute);
  };
  EXPECT_EQ(types(DType::kBF16), std::pair(DType::kBF16, DType::kF32));
  EXPECT_EQ(types(DType::kF32), std::pair(DType::kF32, DType::kF32));
  EXPECT_EQ(types(DType::kF64), std::pair(DType::kF64, DType::kF64));
}

TEST(Init, RefusesWhatIsNotAllocatedOrDoesNotFit) {
  Param w("w", {2}, Init::constant(0));
  EXPECT_THROW(initialise(w, 1), Error);
  EXPECT_THROW(allocate(w, DType::kF64), Error);
}

}  // namespace
}  // namespace anabranch
