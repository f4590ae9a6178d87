// NVTX as a profiler would see it.
#include <mutex>
#include <utility>
#include <vector>

#include <nvtx3/nvToolsExt.h>

#include "tests/cuda_sim/sim.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is NVTX's
struct nvtxDomainRegistration_st {
  std::mutex lock;
  bool watched = false;
  std::vector<std::string> seen;

  int note(const std::string& what) {
    const std::scoped_lock hold(lock);
    if (watched) seen.push_back(what);
    return 0;
  }
};

namespace anabranch::cuda_sim {
namespace {

nvtxDomainRegistration_st& profiler() {
  static nvtxDomainRegistration_st one;
  return one;
}

}  // namespace

std::vector<std::string> watch_ranges(bool on) {
  const std::scoped_lock hold(profiler().lock);
  profiler().watched = on;
  return std::exchange(profiler().seen, {});
}

}  // namespace anabranch::cuda_sim

nvtxDomainHandle_t nvtxDomainCreateA(const char* /*name*/) {
  return &anabranch::cuda_sim::profiler();
}

int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  return domain->note(range->message.ascii);
}

int nvtxDomainRangePop(nvtxDomainHandle_t domain) { return domain->note("end"); }
