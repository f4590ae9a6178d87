#include "core/ops/embedding.h"

#include <array>

#include <gmock/gmock.h>

#include "core/base/parallel_for.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

using test::param;

TEST(Embedding, EqualsTheEquation) {
  for (const test::TestDevice& device : test::devices()) {
    Param table = param("wte", Tensor::of<double>({3, 2}, {1, 2, 3, 4, 5, 6}));
    Param positions = param("wpe", Tensor::of<double>({2, 2}, {10, 20, 30, 40}));
    const std::vector<Param*> params{&table, &positions};
    const test::ParamsOn there(device, params);
    const Tensor ids = device.place(Tensor::of<int32_t>({4}, {2, 0, 2, 2}));
    const Tensor at = device.place(Tensor::of<int32_t>({4}, {0, 1, 0, 1}));
    Tape tape;
    const Var y = embedding(&tape, ids, table, at, &positions);
    EXPECT_EQ(test::values(y.value()), (std::vector<double>{15, 26, 31, 42, 15, 26, 35, 46}));
    tape.backward(y, device.place(Tensor::of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})));
    EXPECT_EQ(test::values(table.grad), (std::vector<double>{3, 4, 0, 0, 13, 16}));
    EXPECT_EQ(test::values(positions.grad), (std::vector<double>{6, 8, 10, 12}));
  }
}

TEST(Embedding, WithoutPositionsOrTape) {
  for (const test::TestDevice& device : test::devices()) {
    for (const int64_t width : {7, 16}) {
      Param table = param("wte", test::random({9, width}, 1, DType::kBF16));
      const std::vector<double> rows = test::values(table.value);
      const std::vector<Param*> params{&table};
      const test::ParamsOn there(device, params);
      // Ids that are still the host's are copied.
      const Var y = embedding(nullptr, Tensor::of<int32_t>({2}, {8, 0}), table);
      EXPECT_EQ(y.tape(), nullptr);
      const std::vector<double> got = test::values(y.value());
      for (int64_t c = 0; c < 2 * width; ++c) {
        EXPECT_EQ(got[static_cast<size_t>(c)],
                  rows[static_cast<size_t>(c < width ? 8 * width + c : c - width)]);
      }
    }
  }
}

// The sums by a plain loop over the rows, in float as the op does.
std::vector<double> by_hand(const Tensor& ids, const Tensor& dy, int64_t V, float start) {
  const int64_t C = dy.dim(1);
  std::vector<float> sums(static_cast<size_t>(V * C), start);
  const std::vector<double> from = test::values(dy);
  for (int64_t n = 0; n < ids.count(); ++n) {
    for (int64_t c = 0; c < C; ++c) {
      sums[static_cast<size_t>(ids.data<int32_t>()[n] * C + c)] +=
          static_cast<float>(from[static_cast<size_t>(n * C + c)]);
    }
  }
  return {sums.begin(), sums.end()};
}

TEST(Embedding, BackwardIsTheLoopOverRowsWhateverTheThreads) {
  const int threads = thread_count();
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t N : {1, 7, 33, 500}) {
      for (const int64_t V : {1, 7, 100}) {
        Tensor ids({N}, DType::kI32);
        for (int64_t n = 0; n < N; ++n) {
          ids.data<int32_t>()[n] = static_cast<int32_t>(philox(5, static_cast<uint64_t>(n))[0] % V);
        }
        const Tensor dy = test::random({N, 33}, 3, type);
        for (const int count : {1, 2, 7}) {
          set_thread_count(count);
          for (const bool accumulate : {false, true}) {
            GradSink sink{test::full({V, 33}, 0.5, DType::kF32), accumulate};
            cpu::embedding_backward(sink, ids, dy);
            EXPECT_EQ(test::values(sink.out), by_hand(ids, dy, V, accumulate ? 0.5F : 0.0F));
          }
        }
      }
    }
  }
  set_thread_count(threads);
}

// Ids of all sizes, of which few are frequent.
Tensor skewed_ids(int64_t N, int64_t V) {
  Tensor ids({N}, DType::kI32);
  for (int64_t n = 0; n < N; ++n) {
    const PhiloxBlock word = philox(6, static_cast<uint64_t>(n));
    ids.data<int32_t>()[n] =
        static_cast<int32_t>(word[1] % 3 == 0 ? word[0] % std::min<int64_t>(V, 3) : word[0] % V);
  }
  return ids;
}

TEST(Embedding, EveryDeviceHasTheGradientOfTheCpu) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (const auto& [N, V, C] : std::vector<std::array<int64_t, 3>>{
               {0, 5, 8}, {1, 1, 8}, {33, 7, 24}, {500, 300, 33}, {3000, 70000, 8}, {999, 1, 16}}) {
        const Tensor ids = skewed_ids(N, V), dy = test::random({N, C}, 3, type);
        for (const bool accumulate : {false, true}) {
          const Tensor there = test::full({V, C}, 0.5, accumulator_of(type));
          GradSink want{there.clone(), accumulate}, got{device.place(there.clone()), accumulate};
          cpu::embedding_backward(want, ids, dy);
          const Tensor placed = device.place(ids), gradient = device.place(dy);
          if (device.pool) {
            if constexpr (build::kCuda) cuda::embedding_backward(got, placed, gradient);
          } else {
            cpu::embedding_backward(got, placed, gradient);
          }
          test::expect_near(got.out, test::values(want.out),
                            test::op_tolerance(accumulator_of(type)), device.name);
        }
      }
    }
  }
}

TEST(Embedding, ARowThatAGpuDoesNotFindIsNan) {
  for (const test::TestDevice& device : test::devices()) {
    if (!device.pool) continue;
    Param table = param("wte", test::random({3, 4}, 1, DType::kF32));
    Param second = param("wpe", test::random({2, 4}, 2, DType::kF32));
    const std::vector<Param*> params{&table, &second};
    const test::ParamsOn there(device, params);
    const Tensor ids = device.place(Tensor::of<int32_t>({4}, {0, 3, -1, 2}));
    const Tensor at = device.place(Tensor::of<int32_t>({4}, {0, 1, 1, 2}));
    Tape tape;
    const Var y = embedding(&tape, ids, table, at, &second);
    const std::vector<double> got = test::values(y.value());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i >= 4) << i;
    tape.backward(y, device.place(test::full({4, 4}, 1, DType::kF32)));  // nor writes elsewhere
    EXPECT_EQ(test::values(table.grad).size(), 12U);
  }
}

TEST(Embedding, NamesAnIdOutOfRange) {
  Param table = param("wte", test::random({3, 2}, 1)),
        second = param("wpe", test::random({2, 2}, 2));
  for (const int32_t bad : {3, -1}) {
    try {
      embedding(nullptr, Tensor::of<int32_t>({2}, {0, bad}), table);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kData);
      EXPECT_THAT(error.what(), testing::HasSubstr(join("id 1 of the batch is ", bad)));
      EXPECT_THAT(error.what(), testing::HasSubstr("wte has rows 0 to 2"));
    }
  }
  const Tensor ids = Tensor::of<int32_t>({1}, {0});
  EXPECT_THROW(embedding(nullptr, ids, table, Tensor::of<int32_t>({1}, {2}), &second), Error);
  EXPECT_THROW(embedding(nullptr, ids, table, Tensor::of<int32_t>({2}, {0, 0}), &second), Error);
}

}  // namespace
}  // namespace anabranch
