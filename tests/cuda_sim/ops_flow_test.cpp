// What carries tokens through a model on the simulated GPU: the same bits in every order of its
// threads and of its work, and the edges of its kernels.
#include <string>

#include "core/tensor/convert.h"
#include "tests/cuda_sim/sim.h"
#include "tests/support/op_checks.h"

namespace anabranch {
namespace {

class SimFlow : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cuda_sim::take_fault(), ""); }

  // Runs `body`, which gives what it computed, in every order and under every schedule.
  static void expect_same_bits(const std::function<std::vector<Tensor>()>& body) {
    const std::vector<Tensor> want = body();
    const auto same = [&](const std::string& name) {
      const std::vector<Tensor> got = body();
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(test::same_bytes(got[i], want[i])) << name << " " << i;
      }
    };
    cuda_sim::for_each_order(2, same);
    cuda_sim::for_each_schedule(2, same);
  }

  test::TestDevice gpu_ = test::devices().back();
};

}  // namespace
}  // namespace anabranch
