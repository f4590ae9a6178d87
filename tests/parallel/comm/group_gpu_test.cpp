#include <gtest/gtest.h>

#include "core/tensor/stream.h"
#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/parallel/comm/group_checks.h"

namespace anabranch {
namespace {

std::vector<test::GroupCheck> checks() {
  std::vector<test::GroupCheck> all = test::group_checks();
  std::erase_if(all, [](const test::GroupCheck& check) { return !check.gpu; });
  return all;
}

class GpuRanks : public testing::TestWithParam<std::tuple<int, test::GroupCheck>> {};

TEST_P(GpuRanks, DoWhatEveryGroupDoes) {
  const auto& [size, check] = GetParam();
  if (gpu_count() < size) GTEST_SKIP() << "there are " << gpu_count() << " GPUs";
  test::run_on_gpus(size, check.run);
}

INSTANTIATE_TEST_SUITE_P(All, GpuRanks,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::ValuesIn(checks())),
                         [](const auto& param_info) {
                           return std::get<1>(param_info.param).name +
                                  std::to_string(std::get<0>(param_info.param));
                         });

}  // namespace
}  // namespace anabranch
