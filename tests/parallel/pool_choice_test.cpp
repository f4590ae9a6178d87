#include "parallel/pool_choice.h"

#include <bit>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/support/op_checks.h"
#include "tests/support/plans.h"

namespace anabranch {
namespace {

using Method = ExpertChoice (*)(const Tensor&, const ExpertChoiceRule&, Group&);

// Any bits at all: every kind of number, and NaN of either sign.
template <class T>
T any_bits(uint64_t i) {
  const PhiloxBlock word = philox(7, i);
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(word[0]);
  } else {
    return std::bit_cast<T>((uint64_t{word[0]} << 32U) | word[1]);
  }
}

// A kind of scores: the i-th of them.
template <class T>
struct Kind {
  const char* name;
  std::function<T(int64_t i)> score;
};

template <class T>
std::vector<Kind<T>> kinds() {
  using Limits = std::numeric_limits<T>;
  const auto random = [](int64_t i) {
    return static_cast<T>(2 * uniform_float(philox(3, static_cast<uint64_t>(i))[0]) - 1);
  };
  return {
      {"random", random},
      {"random positive", [=](int64_t i) { return std::abs(random(i)); }},
      {"many ties", [=](int64_t i) { return std::round(2 * random(i)); }},
      {"all equal", [](int64_t) { return T(0.25); }},
      {"zeros of both signs", [=](int64_t i) { return std::copysign(T(0), random(i)); }},
      {"zeros and ones",
       [=](int64_t i) { return random(i) > 0.5 ? T(1) : std::copysign(T(0), random(i)); }},
      {"mostly NaN", [=](int64_t i) { return random(i) > -0.7 ? Limits::quiet_NaN() : random(i); }},
      {"all NaN", [](int64_t) { return -Limits::quiet_NaN(); }},
      {"denormal", [=](int64_t i) { return std::trunc(9 * random(i)) * Limits::denorm_min(); }},
      {"infinite",
       [=](int64_t i) {
         return std::trunc(3 * random(i)) / std::abs(std::trunc(2 * random(i + 1)));
       }},
      {"neighbours",
       [=](int64_t i) { return T(1) + std::trunc(5 * random(i)) * Limits::epsilon(); }},
      {"any bits", [](int64_t i) { return any_bits<T>(static_cast<uint64_t>(i)); }},
      {"falling", [](int64_t i) { return -static_cast<T>(i); }},
      {"rising", [](int64_t i) { return static_cast<T>(i); }},
  };
}

template <class T>
Tensor scores_of(const Kind<T>& kind, int64_t rows, int64_t experts) {
  Tensor t({rows, experts}, kDTypeOf<T>);
  for (int64_t i = 0; i < t.count(); ++i) t.data<T>()[i] = kind.score(i);
  return t;
}

void expect_same(const ExpertChoice& found, const ExpertChoice& want, const std::string& what) {
  EXPECT_EQ(found.k, want.k) << what;
  EXPECT_EQ(found.plan.rows, want.plan.rows) << what;
  EXPECT_EQ(test::offsets(found.plan.groups), want.plan.groups.offsets) << what;
  EXPECT_EQ(test::used(found.plan, found.plan.source), test::ints(want.plan.source)) << what;
  EXPECT_EQ(test::used(found.plan, found.plan.gate), test::ints(want.plan.gate)) << what;
  ASSERT_EQ(found.kth.shape(), want.kth.shape()) << what;
  EXPECT_TRUE(test::same_bytes(found.kth, want.kth)) << what;
}

// What each method finds on a rank, of whom each has its number of rows, against one rank alone.
void expect_on_rank(Group& g, const test::TestDevice& on, const Tensor& scores,
                    const std::vector<int64_t>& rows_of, const ExpertChoiceRule& rule,
                    const std::vector<Method>& methods, const std::string& what) {
  const int64_t E = scores.dim(1);
  const auto me = rows_of.begin() + g.rank();
  const int64_t first = std::accumulate(rows_of.begin(), me, int64_t{0});
  ExpertChoice want = expert_choice(scores, rule);
  want.plan = slots_of(want.plan, first, *me);
  const Tensor mine = on.place(scores.view(first * E, {*me, E}));
  for (const Method method : methods) expect_same(method(mine, rule, g), want, what);
}

void expect_choice(const Tensor& scores, const std::vector<int64_t>& rows_of,
                   const ExpertChoiceRule& rule, const std::vector<Method>& methods,
                   const std::string& what) {
  run_on_threads(static_cast<int>(std::ssize(rows_of)), [&](Group& g) {
    expect_on_rank(g, {"cpu", nullptr}, scores, rows_of, rule, methods, what);
  });
}

ExpertChoice choose(const Tensor& scores, const ExpertChoiceRule& rule, Group& group) {
  return choose_in_pool(scores, rule, &group);
}

template <class T>
void expect_all_kinds(int ranks) {
  for (const Kind<T>& kind : kinds<T>()) {
    for (const int64_t rows : {1, 6, 37}) {
      for (const double capacity : {1e-9, 1.0, 2.0, 100.0}) {  // k of 1, and of the pool
        const int64_t E = rows % 2 == 0 ? 4 : 3, pool = rows * ranks;
        const auto order = rows == 37 ? SlotOrder::kAffinity : SlotOrder::kTime;
        expect_choice(scores_of(kind, pool, E),
                      std::vector<int64_t>(static_cast<size_t>(ranks), rows),
                      {capacity, pool, order}, {choose_by_gather, choose_by_radix, choose},
                      join(kind.name, ", ", rows, " rows of a rank, capacity ", capacity));
      }
    }
  }
}

class PoolChoice : public testing::TestWithParam<int> {};

TEST_P(PoolChoice, IsThatOfOneRank) {
  expect_all_kinds<float>(GetParam());
  expect_all_kinds<double>(GetParam());
}

// A rank without rows takes part, the first and the last too.
TEST_P(PoolChoice, ByRadixRanksMayHaveAnyNumberOfRows) {
  std::vector<int64_t> rows_of;
  for (int r = 0; r < GetParam(); ++r) rows_of.push_back(r % 2 == 0 ? 0 : 7 * r);
  if (GetParam() < 3) rows_of.back() = 9;
  const int64_t pool = std::accumulate(rows_of.begin(), rows_of.end(), int64_t{0});
  for (const Kind<float>& kind : kinds<float>()) {
    expect_choice(scores_of(kind, pool, 4), rows_of, {2, pool, SlotOrder::kTime}, {choose_by_radix},
                  kind.name);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PoolChoice, testing::Values(1, 2, 3, 4, 8));

// On GPUs, where the build and the machine have them: all kinds of scores, both orders, fewer rows
// than an expert takes, and for radix ranks without any.
TEST(PoolChoice, OnGpusIsThatOfOneRank) {
  const auto run = [](const auto& kinds) {
    test::run_on_all_devices(3, [&](Group& g, const test::TestDevice& on) {
      for (const auto& kind : kinds) {
        for (const double capacity : {0.4, 2.5}) {
          const auto order = capacity < 1 ? SlotOrder::kAffinity : SlotOrder::kTime;
          const Tensor scores = scores_of(kind, 63, 3);
          const std::string what = join(kind.name, ", capacity ", capacity, ", ", on.name);
          expect_on_rank(g, on, scores, {21, 21, 21}, {capacity, 63, order},
                         {choose_by_gather, choose_by_radix}, what);
          expect_on_rank(g, on, scores, {0, 58, 5}, {capacity, 63, order}, {choose_by_radix}, what);
        }
      }
    });
  };
  run(kinds<float>());
  run(std::vector{kinds<double>()[2], kinds<double>()[4], kinds<double>()[11]});
}

TEST(PoolChoice, OnTwoGpusOfManyRows) {
  const Kind<float> kind = kinds<float>()[2];
  test::run_on_all_devices(2, [&](Group& g, const test::TestDevice& on) {
    expect_on_rank(g, on, scores_of(kind, 3000, 4), {1500, 1500}, {2, 0, SlotOrder::kTime},
                   {choose_by_gather, choose_by_radix, choose}, on.name);
  });
}

TEST(PoolChoice, ALargePool) {
  const Kind<float> kind = kinds<float>().front();
  expect_choice(scores_of(kind, 40000, 4), {20000, 20000}, {2, 0, SlotOrder::kTime},
                {choose_by_gather, choose_by_radix, choose}, kind.name);
}

TEST(PoolChoice, AloneARankMayHaveSeveralPools) {
  const Tensor scores = test::random({12, 2}, 1);
  const ExpertChoiceRule rule{1, 4, SlotOrder::kTime};
  expect_same(choose_in_pool(scores, rule, nullptr), expert_choice(scores, rule), "alone");
}

// Radix sends counts, whatever the number of rows; a gather all scores.
TEST(PoolChoice, SendsWhatIsSaid) {
  constexpr int kRanks = 4;
  constexpr int64_t kExperts = 6;
  for (const int64_t rows : {3, 300}) {
    const PoolScores pool{rows * kRanks, kExperts, kRanks, DType::kF32};
    const Tensor scores = test::random({rows, kExperts}, 2, DType::kF32);
    run_on_threads(kRanks, [&](Group& g) {
      const auto received = [&](const Method method) {
        const CommStats before = g.stats();
        method(scores, {}, g);
        g.barrier();  // what came before has been counted
        const CommStats after = g.stats();
        const auto bytes = [&](CollectiveKind kind) {
          return after.of(kind).bytes - before.of(kind).bytes;
        };
        EXPECT_EQ(after.of(CollectiveKind::kAllToAll).calls, 0);
        return std::array{after.of(CollectiveKind::kAllReduceSum).calls,
                          bytes(CollectiveKind::kAllReduceSum), bytes(CollectiveKind::kAllGather)};
      };
      EXPECT_EQ(received(choose_by_gather),
                (std::array<int64_t, 3>{0, 0, kRanks * rows * kExperts * 4}));
      EXPECT_EQ(received(choose_by_radix),
                (std::array<int64_t, 3>{pool.digits(),
                                        pool.digits() * (kExperts << pool.digit_bits()) * 8,
                                        kRanks * kExperts * 8}));
    });
  }
}

// Both formulas of the header, and the digit that makes the second least.
TEST(PoolChoice, TheCheaperMethodIsTaken) {
  constexpr int64_t kRound = 65536;
  const PoolScores few{4 * 512, 4, 4, DType::kF32}, many{4 << 20, 4, 4, DType::kF32};
  EXPECT_EQ(few.gather_cost(), kRound + 3 * 512 * 4 * 4);
  EXPECT_EQ(many.gather_cost(), kRound + 3 * (1 << 20) * 4 * 4);
  const int64_t rest = kRound + 3 * 8 * 4;
  EXPECT_EQ(few.radix_cost(), many.radix_cost());
  EXPECT_EQ(few.digit_bits(), 8);
  EXPECT_EQ(few.radix_cost(), 4 * (kRound + 6 * 8 * 4 * 256 / 4) + rest);
  EXPECT_LT(few.radix_cost(), 3 * (kRound + 6 * 8 * 4 * 2048 / 4) + rest);
  EXPECT_EQ(few.method(), PoolMethod::kGather);
  EXPECT_EQ(many.method(), PoolMethod::kRadix);
  // Counts of many experts are more than the rounds that wider digits save.
  EXPECT_EQ((PoolScores{1 << 20, 256, 4, DType::kF32}).digits(), 8);
  EXPECT_EQ((PoolScores{1 << 20, 1, 2, DType::kF64}).digits(), 6);
}

TEST(PoolChoice, RefusesWhatDoesNotFit) {
  const Tensor scores = test::random({4, 2}, 1);
  const auto fails = [](const Tensor& x, const ExpertChoiceRule& rule, Method method) {
    EXPECT_THROW(run_on_threads(2, [&](Group& g) { method(x, rule, g); }), Error);
  };
  for (const Method method : {choose_by_gather, choose_by_radix, choose}) {
    fails(scores, {1, 9, SlotOrder::kTime}, method);
    fails(scores, {0, 8, SlotOrder::kTime}, method);
    fails(test::random({4}, 1), {1, 8, SlotOrder::kTime}, method);
    fails(test::random({4, 2}, 1, DType::kBF16), {1, 8, SlotOrder::kTime}, method);
    fails(test::random({0, 2}, 1), {}, method);
  }
}

}  // namespace
}  // namespace anabranch
