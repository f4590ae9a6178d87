#include "core/ops/embedding.h"

#include <gmock/gmock.h>

#include "core/base/parallel_for.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

using test::param;

TEST(Embedding, EqualsTheEquation) {
  Param table = param("wte", Tensor::of<double>({3, 2}, {1, 2, 3, 4, 5, 6}));
  Param positions = param("wpe", Tensor::of<double>({2, 2}, {10, 20, 30, 40}));
  const Tensor ids = Tensor::of<int32_t>({4}, {2, 0, 2, 2});
  const Tensor at = Tensor::of<int32_t>({4}, {0, 1, 0, 1});
  Tape tape;
  const Var y = embedding(&tape, ids, table, at, &positions);
  EXPECT_EQ(test::values(y.value()), (std::vector<double>{15, 26, 31, 42, 15, 26, 35, 46}));
  tape.backward(y, Tensor::of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(test::values(table.grad), (std::vector<double>{3, 4, 0, 0, 13, 16}));
  EXPECT_EQ(test::values(positions.grad), (std::vector<double>{6, 8, 10, 12}));
}

TEST(Embedding, WithoutPositionsOrTape) {
  Param table = param("wte", test::random({9, 7}, 1, DType::kBF16));
  const Var y = embedding(nullptr, Tensor::of<int32_t>({2}, {8, 0}), table);
  EXPECT_EQ(y.tape(), nullptr);
  for (int64_t c = 0; c < 7; ++c) {
    EXPECT_EQ(y.value().data<Bf16>()[c], table.value.data<Bf16>()[8 * 7 + c]);
    EXPECT_EQ(y.value().data<Bf16>()[7 + c], table.value.data<Bf16>()[c]);
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
