// Runs the tests; one that leaves a fault behind has failed, whatever it checked.
#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include "tests/cuda_sim/sim.h"

namespace {

class FaultsFail : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& /*test*/) override {  // NOLINT: GoogleTest's name
    for (int device = anabranch::cuda_sim::options().devices - 1; device >= 0; --device) {
      cudaSetDevice(device);
      const std::string fault = anabranch::cuda_sim::take_fault();
      if (!fault.empty()) ADD_FAILURE() << "device " << device << ": " << fault;
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new FaultsFail);
  return RUN_ALL_TESTS();
}
