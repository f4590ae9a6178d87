// Ranks with GPUs, real or simulated.
#pragma once

#include <functional>
#include <memory>

#include "parallel/comm/device_group.h"
#include "tests/support/devices.h"

namespace anabranch::test {

// Runs `body` on ranks that are threads, each with a GPU of its own.
inline void run_on_gpus(int ranks, const std::function<void(Group&, const TestDevice& on)>& body) {
  run_on_threads(ranks, [&](Group& world) {
    const Device gpu{Device::Kind::kCuda, world.rank()};
    const TestDevice on{"cuda", std::make_shared<Pool>(gpu, Pool::Reuse::kNever)};
    const auto group = device_group(world.split(0, world.rank()), gpu);
    body(*group, on);
  });
}

// Runs it on ranks that are threads without GPUs, and where the build and the machine have them on
// such with.
inline void run_on_all_devices(int ranks,
                               const std::function<void(Group&, const TestDevice& on)>& body) {
  run_on_threads(ranks, [&](Group& world) { body(world, {"cpu", nullptr}); });
  if constexpr (build::kCuda) {
    if (gpu_count() >= ranks) run_on_gpus(ranks, body);
  }
}

}  // namespace anabranch::test
