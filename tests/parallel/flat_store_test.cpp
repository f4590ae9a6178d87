#include "parallel/flat_store.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace anabranch {
namespace {

Param make(const std::string& name, Shape shape, DType type = DType::kF32,
           Owner owner = Owner::kAdamw, ReduceGroup reduce = ReduceGroup::kAll) {
  Param w(name, shape, Init::constant(0));
  w.compute = type;
  w.owner = owner;
  w.reduce = reduce;
  return w;
}

std::vector<Param*> pointers(std::vector<Param>& params) {
  std::vector<Param*> all;
  for (Param& w : params) all.push_back(&w);
  return all;
}

// A model in miniature: layers of two matrices and a norm, odd sizes.
std::vector<Param> layers(int count, DType type, Owner owner = Owner::kAdamw) {
  std::vector<Param> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(make(join("h.", i, ".norm"), {7}));
    all.push_back(make(join("h.", i, ".up"), {13, 7}, type, owner));
    all.push_back(make(join("h.", i, ".down"), {7, 13}, type, owner));
  }
  return all;
}

bool aligned(const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.raw()) % 64 == 0; }

TEST(FlatStore, ViewsAreAlignedAndDoNotOverlap) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
    std::vector<Param> params = layers(5, type);
    const auto pool = std::make_shared<Pool>();
    FlatStore store(pointers(params), {.bucket_bytes = 1000, .all_ranks = 3}, pool);
    std::vector<double> number;
    for (size_t i = 0; i < params.size(); ++i) {
      Param& w = params[i];
      EXPECT_EQ(w.value.shape(), w.shape);
      EXPECT_EQ(w.value.dtype(), w.compute);
      EXPECT_EQ(w.master.dtype(), accumulator_of(w.compute));
      EXPECT_EQ(w.grad.dtype(), accumulator_of(w.compute));
      EXPECT_TRUE(aligned(w.value) && aligned(w.master) && aligned(w.grad)) << w.name;
      EXPECT_EQ(w.value.shares(w.master), w.compute == accumulator_of(w.compute));
      EXPECT_TRUE(w.fresh);
      w.master.copy_from(test::full(w.shape, static_cast<double>(i + 1), w.master.dtype()));
    }
    store.refresh_values();
    for (size_t i = 0; i < params.size(); ++i) {
      for (const double v : test::values(params[i].value)) EXPECT_EQ(v, static_cast<double>(i + 1));
    }
    // Padding is zero: the sum over buckets is the sum over parameters.
    double in_buckets = 0, in_params = 0;
    for (const Bucket& b : store.buckets()) {
      for (const double v : test::values(b.master)) in_buckets += v;
      EXPECT_EQ(b.count % (3 * FlatStore::kAlign), 0);
    }
    for (const Param& w : params) {
      for (const double v : test::values(w.master)) in_params += v;
    }
    EXPECT_EQ(in_buckets, in_params);
    EXPECT_EQ(store.parameter_count(), 5 * (7 + 2 * 91));
  }
}

TEST(FlatStore, BucketsFollowBackward) {
  std::vector<Param> params = layers(4, DType::kBF16);
  FlatStore store(pointers(params), {.bucket_bytes = 700}, nullptr);
  // Each bucket of matrices takes a layer (2 x 96 x 4 bytes); the norms, kept in fp32, come last.
  ASSERT_EQ(store.buckets().size(), 5U);
  for (int b = 0; b < 4; ++b) {
    const auto entries = store.entries_of(b);
    ASSERT_EQ(entries.size(), 2U);
    EXPECT_EQ(entries[0].param->name, join("h.", 3 - b, ".down"));
    EXPECT_EQ(entries[1].param->name, join("h.", 3 - b, ".up"));
    EXPECT_EQ(store.buckets()[static_cast<size_t>(b)].compute, DType::kBF16);
  }
  EXPECT_EQ(store.buckets()[4].compute, DType::kF32);
  EXPECT_EQ(store.entries_of(4).size(), 4U);
  for (size_t i = 0; i < params.size(); ++i) EXPECT_EQ(store.entries()[i].param, &params[i]);
}

TEST(FlatStore, KindsDoNotMix) {
  std::vector<Param> params;
  params.push_back(make("a", {4, 4}));
  params.push_back(make("b", {4, 4}, DType::kF32, Owner::kMatrix));
  params.push_back(make("c", {4, 4}, DType::kF32, Owner::kAdamw, ReduceGroup::kData));
  params.push_back(make("d", {4, 4}, DType::kBF16));
  FlatStore store(pointers(params), {.all_ranks = 4, .data_ranks = 2}, nullptr);
  ASSERT_EQ(store.buckets().size(), 4U);
  for (const FlatStore::Entry& e : store.entries()) {
    const Bucket& b = store.buckets()[static_cast<size_t>(e.bucket)];
    EXPECT_EQ(b.reduce, e.param->reduce);
    EXPECT_EQ(b.ranks, e.param->reduce == ReduceGroup::kAll ? 4 : 2);
    EXPECT_EQ(b.owner, e.param->owner);
    EXPECT_EQ(b.compute, e.param->compute);
    EXPECT_EQ(b.v.empty(), b.owner == Owner::kMatrix);
    EXPECT_EQ(store.m(e).shape(), e.param->shape);
    EXPECT_EQ(store.v(e).empty(), b.owner == Owner::kMatrix);
  }
}

TEST(FlatStore, SlicesAreEqualAndCoverTheBucket) {
  for (const int ranks : {1, 2, 3, 8}) {
    std::vector<Param> params = layers(3, DType::kF32);
    FlatStore store(pointers(params), {.bucket_bytes = 1, .all_ranks = ranks}, nullptr);
    for (int b = 0; b < std::ssize(store.buckets()); ++b) {
      int64_t end = 0;
      for (int r = 0; r < ranks; ++r) {
        const FlatStore::Slice slice = store.slice(b, r);
        EXPECT_EQ(slice.begin, end);
        EXPECT_EQ(slice.begin % FlatStore::kAlign, 0);
        end += slice.count;
      }
      EXPECT_EQ(end, store.buckets()[static_cast<size_t>(b)].count);
    }
  }
}

TEST(FlatStore, AMatrixLiesWithinOneOwnersSegment) {
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<Param> params = layers(6, DType::kF32, Owner::kMatrix);
    params.push_back(make("big", {64, 33}, DType::kF32, Owner::kMatrix));
    FlatStore store(pointers(params), {.bucket_bytes = 2000, .all_ranks = ranks}, nullptr);
    for (const FlatStore::Entry& e : store.entries()) {
      const Bucket& b = store.buckets()[static_cast<size_t>(e.bucket)];
      if (b.owner != Owner::kMatrix) continue;
      const int64_t segment = store.slice(e.bucket, 0).count;
      EXPECT_EQ(e.offset / segment, (e.offset + e.param->shape.count() - 1) / segment);
    }
  }
}

TEST(FlatStore, MomentsArePerParameter) {
  std::vector<Param> params = layers(2, DType::kBF16);
  FlatStore store(pointers(params), {}, nullptr);
  double number = 0;
  for (const auto& e : store.entries()) {
    Tensor m = store.m(e), v = store.v(e);
    m.copy_from(test::full(m.shape(), ++number, DType::kF32));
    v.copy_from(test::full(v.shape(), -number, DType::kF32));
  }
  number = 0;
  for (const auto& e : store.entries()) {
    ++number;
    for (const double x : test::values(store.m(e))) EXPECT_EQ(x, number);
    for (const double x : test::values(store.v(e))) EXPECT_EQ(x, -number);
  }
}

TEST(FlatStore, RefusesWhatItCannotLayOut) {
  std::vector<Param> params;
  params.push_back(make("norm", {4}, DType::kF32, Owner::kMatrix));
  EXPECT_THROW(FlatStore(pointers(params), {}, nullptr), Error);
  Param w = make("w", {4}), other = make("w", {4});
  EXPECT_THROW(FlatStore({&w, &w}, {}, nullptr), Error);
  EXPECT_THROW(FlatStore({&w, &other}, {}, nullptr), Error);
}

}  // namespace
}  // namespace anabranch
