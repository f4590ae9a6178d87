// The checks of every group, and of jobs that fail, as one program that mpirun starts.
//
//   mpi_ranks                 runs the checks on all ranks
//   mpi_ranks SCENARIO        ends as launch would when one rank fails: throw | hang | killed |
//   exit

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "parallel/comm/mpi_world.h"
#include "parallel/topology.h"
#include "tests/parallel/comm/group_checks.h"

namespace anabranch {
namespace {

class OnMpi : public testing::Test {
 public:
  OnMpi(Group& group, test::GroupCheck check) : group_(group), check_(std::move(check)) {}

  void TestBody() override {
    check_.run(group_, {});
    const Tensor failed = Tensor::of<int64_t>({1}, {HasFailure() ? 1 : 0});
    group_.all_reduce_sum(failed).wait();
    EXPECT_EQ(*failed.data<int64_t>(), 0) << "ranks that failed";
  }

 private:
  Group& group_;
  test::GroupCheck check_;
};

int run_checks(Group& group) {
  testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  if (group.rank() != 0) {
    delete tests.listeners().Release(tests.listeners().default_result_printer());
  }
  std::vector<test::GroupCheck> checks = test::group_checks();
  checks.push_back({"Agreement", [](Group& g, const test::TestDevice& /*on*/) {
                      require_same(g, "the build", "v1");
                      const Topology t = find_topology(g);
                      EXPECT_EQ(std::ssize(t.hosts), g.size());
                      EXPECT_GE(t.threads, 1);
                    }});
  for (const test::GroupCheck& check : checks) {
    testing::RegisterTest(
        "MpiRanks", check.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [&group, check] { return static_cast<testing::Test*>(new OnMpi(group, check)); });
  }
  return RUN_ALL_TESTS();
}

void fail(Group& group, const std::string& scenario) {
  const bool last = group.rank() == group.size() - 1;
  group.set_deadline(1);
  group.barrier();
  if (last && scenario == "throw") throw data_error("shard 7 is broken");
  if (last && scenario == "killed") std::raise(SIGKILL);
  if (last && scenario == "hang") std::this_thread::sleep_for(std::chrono::seconds(60));
  if (scenario != "hang") group.set_deadline(0);
  group.barrier();
  std::cerr << "no rank failed\n";
}

// As launch does: say what went wrong, then end all ranks.
int run(MpiWorld& world, const std::string& scenario) {
  try {
    const auto group = world.group();
    group->set_deadline(60);
    if (scenario.empty()) return run_checks(*group);
    fail(*group, scenario);
    return 0;
  } catch (const Error& error) {
    std::cerr << "rank " << world.rank() << ": " << error.what() << std::endl;
    MpiWorld::abort(static_cast<int>(error.fault()));
  }
}

}  // namespace
}  // namespace anabranch

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  anabranch::MpiWorld world;
  return anabranch::run(world, argc > 1 ? argv[1] : "");
}
