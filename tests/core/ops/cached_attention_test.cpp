#include "core/ops/cached_attention.h"

#include <algorithm>

#include "core/ops/attention.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kHeads = 2;
constexpr int64_t kChannels = 2 * 32;  // wide enough for the bfloat16 kernels

// Rows [begin, end) of a matrix.
Tensor rows(const Tensor& x, int64_t begin, int64_t end) {
  return x.view(begin * x.dim(1), {end - begin, x.dim(1)});
}

// Feeds `qkv`, one sequence, to a cache in pieces; all results, one below the other.
std::vector<double> in_pieces(const Tensor& qkv, const std::vector<int64_t>& pieces) {
  KvCache cache = make_kv_cache(qkv, 1, qkv.dim(0), kChannels);
  std::vector<double> all;
  int64_t done = 0;
  for (const int64_t n : pieces) {
    const Tensor y = cached_attention(rows(qkv, done, done + n), cache, kHeads);
    std::ranges::copy(test::values(y), std::back_inserter(all));
    done += n;
    EXPECT_EQ(cache.lengths[0], done);
  }
  return all;
}

TEST(CachedAttention, OneTokenAfterAnotherByHand) {
  // D = 1 and the numbers of attention_test: scores 0 and 2 ln 3, weights 1 : 9.
  KvCache cache = make_kv_cache(test::full({1}, 0), 1, 2, 1);
  const Tensor first = cached_attention(Tensor::of<double>({1, 3}, {1, 0, 10}), cache, 1);
  const Tensor second =
      cached_attention(Tensor::of<double>({1, 3}, {2, std::log(3.0), 20}), cache, 1);
  test::expect_near(first, {10}, test::op_tolerance(DType::kF64), "first");
  test::expect_near(second, {19}, test::op_tolerance(DType::kF64), "second");
}

TEST(CachedAttention, PiecesEqualTheWhole) {
  const std::vector<std::vector<int64_t>> splits = {
      {150}, {100, 50}, {9, 64, 77}, {3, 1, 1, 70, 1, 7, 1, 65, 1}};
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor qkv = test::random({150, 3 * kChannels}, 1, type);
    const Tensor whole = attention(Var(qkv), 1, kHeads).value();
    for (const test::TestDevice& device : test::devices()) {
      for (const auto& pieces : splits) {
        const std::vector<double> got = in_pieces(device.place(qkv), pieces);
        test::expect_near(whole, got, test::op_tolerance(type), device.name);
      }
    }
    EXPECT_EQ(in_pieces(qkv, {150}), test::values(whole));  // a prompt runs the same code
  }
}

void expect_padding_is_left_out(const test::TestDevice& device, DType type) {
  const std::vector<int64_t> prompts = {20, 0, 7};
  const int64_t most = 20, steps = 3;
  std::vector<Tensor> texts;  // each sequence whole: its prompt and `steps` more tokens
  Tensor batch = test::full({3 * most, 3 * kChannels}, NAN, type);
  KvCache cache = make_kv_cache(device.place(batch), 3, most + steps, kChannels);
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t n = prompts[static_cast<size_t>(b)];
    texts.push_back(test::random({n + steps, 3 * kChannels}, static_cast<uint32_t>(b), type));
    if (n > 0) rows(batch, b * most, b * most + n).copy_from(rows(texts.back(), 0, n));
  }
  const Tensor y = cached_attention(device.place(batch), cache, kHeads, prompts);
  EXPECT_EQ(cache.lengths, prompts);
  std::vector<Tensor> want;
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t n = prompts[static_cast<size_t>(b)];
    want.push_back(attention(Var(texts[static_cast<size_t>(b)]), 1, kHeads).value());
    if (n > 0) {
      test::expect_near(rows(y, b * most, b * most + n), test::values(rows(want.back(), 0, n)),
                        test::op_tolerance(type), "prompt");
    }
    for (const double v : test::values(rows(y, b * most + n, (b + 1) * most))) EXPECT_EQ(v, 0);
  }
  for (int64_t step = 0; step < steps; ++step) {
    Tensor next({3, 3 * kChannels}, type);
    for (size_t b = 0; b < 3; ++b) {
      const auto row = static_cast<int64_t>(b);
      rows(next, row, row + 1).copy_from(rows(texts[b], prompts[b] + step, prompts[b] + step + 1));
    }
    const Tensor more = cached_attention(device.place(next), cache, kHeads);
    for (size_t b = 0; b < 3; ++b) {
      const auto row = static_cast<int64_t>(b);
      const Tensor expected = rows(want[b], prompts[b] + step, prompts[b] + step + 1);
      test::expect_near(rows(more, row, row + 1), test::values(expected), test::op_tolerance(type),
                        "step");
    }
  }
}

TEST(CachedAttention, SequencesOfDifferentLengthsPaddedAtTheRight) {
  for (const test::TestDevice& device : test::devices()) {
    for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
      expect_padding_is_left_out(device, type);
    }
  }
}

TEST(CachedAttention, ManySequencesAreServedOnEveryDevice) {
  const Tensor qkv = test::random({130 * 2, 3 * 8}, 1, DType::kF32);
  KvCache on_cpu = make_kv_cache(qkv, 130, 2, 8);
  const std::vector<double> want = test::values(cached_attention(qkv, on_cpu, 1));
  for (const test::TestDevice& device : test::devices()) {
    KvCache cache = make_kv_cache(device.place(qkv), 130, 2, 8);
    test::expect_near(cached_attention(device.place(qkv), cache, 1), want,
                      test::op_tolerance(DType::kF32), device.name);
  }
}

TEST(CachedAttention, AFullCacheRefusesAndIsLeftAsItWas) {
  const Tensor qkv = test::random({2 * 3, 3 * kChannels}, 1);
  KvCache cache = make_kv_cache(qkv, 2, 4, kChannels);
  cached_attention(qkv, cache, kHeads, std::vector<int64_t>{1, 2});
  const std::vector<double> keys = test::values(cache.keys.view(0, {1, kChannels}));
  try {
    cached_attention(qkv, cache, kHeads);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sequence 1 holds 2 tokens"), std::string::npos);
  }
  EXPECT_EQ(cache.lengths, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(test::values(cache.keys.view(0, {1, kChannels})), keys);
  cached_attention(qkv, cache, kHeads, std::vector<int64_t>{3, 2});
  EXPECT_EQ(cache.lengths, (std::vector<int64_t>{4, 4}));
}

TEST(CachedAttention, RefusesWhatDoesNotFit) {
  const Tensor qkv = test::random({4, 3 * kChannels}, 1);
  KvCache cache = make_kv_cache(qkv, 2, 8, kChannels);
  EXPECT_THROW(cached_attention(qkv, cache, 5), Error);
  EXPECT_THROW(cached_attention(qkv, cache, 0), Error);
  EXPECT_THROW(cached_attention(rows(qkv, 0, 3), cache, kHeads), Error);
  EXPECT_THROW(cached_attention(qkv, cache, kHeads, std::vector<int64_t>{1}), Error);
  EXPECT_THROW(cached_attention(qkv, cache, kHeads, std::vector<int64_t>{1, 3}), Error);
  EXPECT_THROW(cached_attention(qkv, cache, kHeads, std::vector<int64_t>{-1, 1}), Error);
  EXPECT_THROW(cached_attention(test::cast(qkv, DType::kF32), cache, kHeads), Error);
  EXPECT_THROW(cached_attention(test::random({4, 3 * 6}, 1), cache, kHeads), Error);
  EXPECT_EQ(cache.lengths, (std::vector<int64_t>{0, 0}));
}

}  // namespace
}  // namespace anabranch
