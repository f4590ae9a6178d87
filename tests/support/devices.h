// The devices that op tests run on: the CPU, and a GPU where the build and the machine have one. In
// the build of tests/cuda_sim that one is simulated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/autograd/param.h"
#include "core/base/build.h"
#include "core/tensor/pool.h"

namespace anabranch::test {

struct TestDevice {
  std::string name;
  std::shared_ptr<Pool> pool;  // null: the plain heap of the CPU

  // `t` in this device's memory; itself if it is there.
  [[nodiscard]] Tensor place(const Tensor& t) const { return pool ? t.copy_in(pool) : t; }
};

// Every block of a GPU's memory is new and just as large as asked for, so that reads of what was
// never written and accesses past the end show.
inline std::vector<TestDevice> devices() {
  std::vector<TestDevice> all{{"cpu", nullptr}};
  if constexpr (build::kCuda) {
    const Device gpu{Device::Kind::kCuda, 0};
    if (gpu_count() > 0) {
      all.push_back({"cuda", std::make_shared<Pool>(gpu, Pool::Reuse::kNever)});
    }
  }
  return all;
}

// Has the values of parameters in a device's memory for as long as it lives.
class ParamsOn {
 public:
  ParamsOn(const TestDevice& device, const std::vector<Param*>& params) : params_(params) {
    for (Param* w : params_) {
      values_.push_back(w->value);
      w->value = device.place(w->value);
    }
  }

  ~ParamsOn() {
    for (size_t i = 0; i < params_.size(); ++i) params_[i]->value = values_[i];
  }

  ParamsOn(const ParamsOn&) = delete;
  ParamsOn& operator=(const ParamsOn&) = delete;

 private:
  const std::vector<Param*>& params_;
  std::vector<Tensor> values_;
};

}  // namespace anabranch::test
