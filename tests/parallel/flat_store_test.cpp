#include "parallel/flat_store.h"

#include <algorithm>
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
      EXPECT_EQ(b.count % FlatStore::kAlign, 0);
    }
    for (const Param& w : params) {
      for (const double v : test::values(w.master)) in_params += v;
    }
    EXPECT_EQ(in_buckets, in_params);
    EXPECT_EQ(store.parameter_count(), 5 * (7 + 2 * 91));
  }
}

TEST(FlatStore, LanesOfGradientsAreRowsOfABucket) {
  std::vector<Param> params = layers(3, DType::kF32);
  FlatStore store(pointers(params), {.bucket_bytes = 700, .all_ranks = 2, .lanes = 4}, nullptr);
  EXPECT_EQ(store.lanes(), 4);
  for (const FlatStore::Entry& e : store.entries()) {
    Param& w = *e.param;
    const Bucket& b = store.buckets()[static_cast<size_t>(e.bucket)];
    EXPECT_EQ(b.lanes.shape(), Shape({4, b.count}));
    EXPECT_EQ(b.grad.raw(), b.lanes.raw());
    ASSERT_EQ(w.lanes.size(), 3U);
    EXPECT_EQ(w.grad.raw(), b.lanes.view(e.offset, {1}).raw());
    for (size_t lane = 0; lane < 3; ++lane) {
      GradLane& at = w.lanes[lane];
      EXPECT_EQ(at.grad.shape(), w.shape);
      const int64_t row = static_cast<int64_t>(lane + 1) * b.count;
      EXPECT_EQ(at.grad.raw(), b.lanes.view(row + e.offset, {1}).raw());
      EXPECT_TRUE(at.fresh && aligned(at.grad));
      at.fresh = false;
    }
  }
  store.forget_grads();
  for (const Param& w : params) EXPECT_TRUE(w.lanes[0].fresh && w.lanes[2].fresh);
  EXPECT_EQ(FlatStore(pointers(params), {}, nullptr).lanes(), 1);
  EXPECT_TRUE(params.front().lanes.empty());
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
    FlatStore store(pointers(params), {.bucket_bytes = 1, .all_ranks = ranks, .zero = true},
                    nullptr);
    for (const Bucket& b : store.buckets()) {
      int64_t end = 0;
      for (int r = 0; r < ranks; ++r) {
        const Slice slice = b.slice(r);
        EXPECT_EQ(slice.begin, end);
        EXPECT_EQ(slice.begin % FlatStore::kAlign, 0);
        EXPECT_EQ(slice.count, b.count / ranks);
        end += slice.count;
      }
      EXPECT_EQ(end, b.count);
    }
  }
}

// Ranks that own none of a bucket's matrices cost it no memory.
TEST(FlatStore, AMatrixHasOneOwnerAndIsNotPadded) {
  for (const int ranks : {1, 2, 3, 5, 64}) {
    std::vector<Param> params = layers(6, DType::kF32, Owner::kMatrix);
    params.push_back(make("big", {64, 33}, DType::kF32, Owner::kMatrix));
    FlatStore store(pointers(params), {.bucket_bytes = 2000, .all_ranks = ranks, .zero = true},
                    nullptr);
    std::vector<int64_t> room(store.buckets().size(), 0);
    for (const FlatStore::Entry& e : store.entries()) {
      const Bucket& b = store.buckets()[static_cast<size_t>(e.bucket)];
      if (b.owner != Owner::kMatrix) continue;
      const int64_t count = e.param->shape.count(), unit = FlatStore::kAlign;
      room[static_cast<size_t>(e.bucket)] += (count + unit - 1) / unit * unit;
      int owners = 0;
      for (int r = 0; r < ranks; ++r) {
        const Slice slice = b.slice(r);
        const int64_t end = slice.begin + slice.count;
        if (e.offset < end && slice.begin < e.offset + count) ++owners;
      }
      EXPECT_EQ(owners, 1) << e.param->name;
    }
    for (size_t b = 0; b < room.size(); ++b) {
      if (store.buckets()[b].owner == Owner::kMatrix) {
        EXPECT_EQ(store.buckets()[b].count, room[b]) << ranks;
      }
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

// With ZeRO-1 the ranks' masters and moments are the pieces of the whole ones.
TEST(FlatStore, RanksOwnEveryElementOnce) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const Owner owner : {Owner::kAdamw, Owner::kMatrix}) {
      for (const int ranks : {1, 2, 3, 8}) {
        std::vector<std::vector<int>> owners;  // by parameter and element, how many own it
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<Param> params = layers(5, type, owner);
          const auto pool = std::make_shared<Pool>();
          FlatStore store(
              pointers(params),
              {.bucket_bytes = 1000, .all_ranks = ranks, .all_rank = rank, .zero = true}, pool);
          owners.resize(params.size());
          for (const FlatStore::Entry& e : store.entries()) {
            const Param& w = *e.param;
            const Bucket& b = store.buckets()[static_cast<size_t>(e.bucket)];
            const Slice slice = b.slice(rank);
            EXPECT_EQ(b.sharded(), ranks > 1);
            EXPECT_EQ(b.master.count(), slice.count);
            EXPECT_EQ(b.m.count(), slice.count);
            EXPECT_EQ(b.v.count(), b.owner == Owner::kAdamw ? slice.count : 0);
            EXPECT_EQ(w.master.count(), e.own.count);
            EXPECT_EQ(w.master_begin, e.own.begin);
            EXPECT_EQ(store.m(e).shape(), w.master.shape());
            EXPECT_EQ(w.value.shape(), w.shape);
            EXPECT_TRUE(aligned(w.value) && aligned(w.grad)) << w.name;
            std::vector<int>& of = owners[static_cast<size_t>(&w - params.data())];
            of.resize(static_cast<size_t>(w.shape.count()));
            for (int64_t i = 0; i < e.own.count; ++i) ++of[static_cast<size_t>(e.own.begin + i)];
            if (b.owner == Owner::kMatrix) {
              EXPECT_TRUE(e.own.count == 0 || e.own.count == w.shape.count()) << w.name;
            }
            if (e.own.count == 0 || w.compute != accumulator_of(w.compute)) continue;
            EXPECT_EQ(w.master.raw(), w.value.view(e.own.begin, {1}).raw()) << w.name;
          }
        }
        for (const std::vector<int>& of : owners) {
          EXPECT_EQ(of, std::vector<int>(of.size(), 1)) << ranks;
        }
      }
    }
  }
}

// Transformer layers whose matrices do not come out even in any bucket.
TEST(FlatStore, MatricesAreDealtByCost) {
  for (const int ranks : {2, 3, 4, 8}) {
    std::vector<double> cost(static_cast<size_t>(ranks), 0);
    double all = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<Param> params;
      for (int i = 0; i < 12; ++i) {
        params.push_back(make(join(i, "qkv"), {96, 32}, DType::kF32, Owner::kMatrix));
        params.push_back(make(join(i, "proj"), {32, 32}, DType::kF32, Owner::kMatrix));
        params.push_back(make(join(i, "up"), {128, 32}, DType::kF32, Owner::kMatrix));
        params.push_back(make(join(i, "down"), {32, 128}, DType::kF32, Owner::kMatrix));
        params.push_back(make(join(i, "router"), {4, 32}, DType::kF32, Owner::kMatrix));
      }
      const FlatStore::Options options{
          .bucket_bytes = 60000, .all_ranks = ranks, .all_rank = rank, .zero = true};
      FlatStore store(pointers(params), options, nullptr);
      for (const FlatStore::Entry& e : store.entries()) {
        const int64_t rows = e.param->shape[0], columns = e.param->shape[1];
        const auto one = static_cast<double>(rows * columns * std::min(rows, columns));
        if (e.own.count > 0) cost[static_cast<size_t>(rank)] += one;
        if (rank == 0) all += one;
      }
    }
    EXPECT_LE(*std::ranges::max_element(cost), 1.15 * all / ranks) << ranks;
  }
}

TEST(FlatStore, RefusesWhatItCannotLayOut) {
  std::vector<Param> params;
  params.push_back(make("norm", {4}, DType::kF32, Owner::kMatrix));
  EXPECT_THROW(FlatStore(pointers(params), {}, nullptr), Error);
  Param w = make("w", {4}), other = make("w", {4});
  Param cut = make("cut", {4, 6, 5}, DType::kF32, Owner::kMatrix);
  cut.matrices = 4;
  cut.split(1, 0, 3, 2);
  EXPECT_THROW(FlatStore({&cut}, {}, nullptr), Error);
  EXPECT_THROW(FlatStore({&w, &w}, {}, nullptr), Error);
  EXPECT_THROW(FlatStore({&w, &other}, {}, nullptr), Error);
}

}  // namespace
}  // namespace anabranch
