#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/comm/group.h"
#include "tests/parallel/comm/group_checks.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class ThreadRanks : public testing::TestWithParam<std::tuple<int, test::GroupCheck>> {};

TEST_P(ThreadRanks, DoWhatEveryGroupDoes) {
  const auto& [size, check] = GetParam();
  run_on_threads(size, [&](Group& world) { check.run(world, {}); });
}

INSTANTIATE_TEST_SUITE_P(All, ThreadRanks,
                         testing::Combine(testing::Values(1, 2, 3, 4, 8),
                                          testing::ValuesIn(test::group_checks())),
                         [](const auto& param_info) {
                           return std::get<1>(param_info.param).name +
                                  std::to_string(std::get<0>(param_info.param));
                         });

// What `f` throws as an Error.
Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Fault::kInternal, ""};
}

TEST(ThreadRanksFailing, TheFirstErrorIsRethrownAndNoOneWaits) {
  std::atomic<int> lost{0};
  const Error error = error_of([&] {
    run_on_threads(4, [&](Group& g) {
      g.barrier();
      if (g.rank() == 2) throw data_error("shard 7 is broken");
      try {
        g.barrier();
      } catch (const Error& e) {
        EXPECT_EQ(e.fault(), Fault::kPeer);
        EXPECT_THAT(e.what(), HasSubstr("rank 2 of 4 failed: shard 7 is broken"));
        ++lost;
        throw;
      }
    });
  });
  EXPECT_EQ(error.fault(), Fault::kData);
  EXPECT_STREQ(error.what(), "shard 7 is broken");
  EXPECT_EQ(lost, 3);
}

TEST(ThreadRanksFailing, AnAbortReachesRanksInAnotherGroup) {
  const Error error = error_of([&] {
    run_on_threads(3, [&](Group& g) {
      const auto pair = g.split(g.rank() == 0 ? 0 : 1, 0);
      if (g.rank() == 0) throw data_error("bad");
      if (g.rank() == 1) pair->barrier();  // rank 2 is not there
      if (g.rank() == 2) g.barrier();
    });
  });
  EXPECT_EQ(error.fault(), Fault::kData);
}

TEST(ThreadRanksFailing, AStartAfterAnAbortThrows) {
  run_on_threads(2, [&](Group& g) {
    g.barrier();
    g.abort("enough");
    EXPECT_THROW(g.barrier(), Error);
  });
}

TEST(ThreadRanksFailing, ADeadlineNamesWhoIsMissing) {
  const Error error = error_of([&] {
    run_on_threads(3, [&](Group& g) {
      g.set_deadline(0.2);
      g.barrier();
      if (g.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
      } else {
        g.all_reduce_sum(Tensor({5}, DType::kF32).clone()).wait();
      }
    });
  });
  EXPECT_EQ(error.fault(), Fault::kPeer);
  EXPECT_THAT(error.what(), HasSubstr("all_reduce_sum #1 of float32[5]"));
  EXPECT_THAT(error.what(), HasSubstr("for rank 1:"));
}

TEST(ThreadRanksFailing, RanksThatCallDifferentThingsAreTold) {
  const Error error = error_of([&] {
    run_on_threads(2, [&](Group& g) {
      if (g.rank() == 0) {
        g.barrier();
      } else {
        g.broadcast(Tensor::of<float>({1}, {1}), 0).wait();
      }
    });
  });
  EXPECT_THAT(error.what(), HasSubstr("broadcast #0 of float32[1]"));
  EXPECT_THAT(error.what(), HasSubstr("barrier #0"));
}

TEST(ThreadRanksFailing, UnevenRowsThatDoNotMatchAreTold) {
  const Error error = error_of([&] {
    run_on_threads(2, [&](Group& g) {
      const int64_t more = g.rank();  // rank 1 sends 2 rows to rank 0, which expects 1
      g.all_to_all(Tensor({2, 1}, DType::kF32).clone(), Tensor({2 + more, 1}, DType::kF32).clone(),
                   {1 + more, 1}, {1, 1})
          .wait();
    });
  });
  EXPECT_THAT(error.what(), HasSubstr("sends 2 rows"));
}

}  // namespace
}  // namespace anabranch
