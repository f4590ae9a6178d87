// The simulated cuBLAS: it refuses what cuBLAS does, sees memory that is too small, and waits for
// its stream.
#include <cublas_v2.h>
#include <gtest/gtest.h>

#include "tests/cuda_sim/device_buffer.h"
#include "tests/cuda_sim/sim.h"

namespace anabranch::cuda_sim {
namespace {

class Cublas : public testing::Test {
 protected:
  Cublas() {
    EXPECT_EQ(cublasCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetStream(handle_, stream_.get()), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetWorkspace(handle_, workspace_.get(), 256), CUBLAS_STATUS_SUCCESS);
  }

  ~Cublas() override { cublasDestroy(handle_); }

  // c [m, n] = a [m, k] b [k, n] by columns.
  cublasStatus_t product(float* c, const float* a, const float* b, int m, int n, int k, int lda,
                         cudaDataType_t a_type = CUDA_R_32F) {
    const float one = 1, zero = 0;
    return cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, a_type, lda, b,
                        CUDA_R_32F, k, &zero, c, CUDA_R_32F, m, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
  }

  TestStream stream_;
  DeviceBuffer<char> workspace_{stream_.get(), 256};
  cublasHandle_t handle_ = nullptr;
};

TEST_F(Cublas, MultipliesByColumnsAndDoesNotReadWhatItOverwrites) {
  const DeviceBuffer<float> a(stream_.get(), {1, 2, 3, 4}), b(stream_.get(), {5, 6, 7, 8});
  const DeviceBuffer<float> c(stream_.get(), 4);  // uninitialised: NaN
  EXPECT_EQ(product(c.get(), a.get(), b.get(), 2, 2, 2, 2), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.host(), (std::vector<float>{23, 34, 31, 46}));
}

TEST_F(Cublas, RefusesWhatDoesNotFit) {
  const DeviceBuffer<float> a(stream_.get(), ramp(6)), b(stream_.get(), ramp(6));
  const DeviceBuffer<float> c(stream_.get(), 4);
  EXPECT_EQ(product(c.get(), a.get(), b.get(), 2, 2, 3, 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product(c.get(), a.get(), b.get(), 2, -2, 3, 2), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product(c.get(), a.get(), b.get(), 2, 2, 3, 2, CUDA_R_64F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasSetStream(handle_, stream_.get()), CUBLAS_STATUS_SUCCESS);  // no workspace now
  EXPECT_EQ(product(c.get(), a.get(), b.get(), 2, 2, 3, 2), CUBLAS_STATUS_NOT_INITIALIZED);
  take_fault();
}

TEST_F(Cublas, MemoryThatIsTooSmallIsAFault) {
  const DeviceBuffer<float> a(stream_.get(), ramp(5)), b(stream_.get(), ramp(6));
  const DeviceBuffer<float> c(stream_.get(), 4);
  EXPECT_EQ(product(c.get(), a.get(), b.get(), 2, 2, 3, 2), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_NE(take_fault().find("are not device memory"), std::string::npos);
}

TEST_F(Cublas, RunsInTheOrderOfItsStream) {
  for (const bool waits : {true, false}) {
    bool always_right = true;
    for_each_schedule(4, [&](const std::string&) {
      const TestStream other;
      const DeviceBuffer<float> a(other.get(), ramp(1)), b(stream_.get(), ramp(1));
      const DeviceBuffer<float> c(stream_.get(), 1);
      cudaEvent_t ready = nullptr;
      cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
      cudaEventRecord(ready, other.get());
      if (waits) cudaStreamWaitEvent(stream_.get(), ready);
      product(c.get(), a.get(), b.get(), 1, 1, 1, 1);
      always_right = always_right && c.host() == std::vector<float>{0.25F};
      cudaEventDestroy(ready);
    });
    EXPECT_EQ(always_right, waits);
  }
}

}  // namespace
}  // namespace anabranch::cuda_sim
