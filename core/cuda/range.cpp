#include "core/base/range.h"

#include <array>
#include <cstdio>

#include <nvtx3/nvToolsExt.h>

namespace anabranch::cuda {
namespace {

// Null unless a tool watches this process.
nvtxDomainHandle_t domain() {
  static auto* const ours = nvtxDomainCreateA("anabranch");
  return ours;
}

}  // namespace

void begin_range(const char* name, int64_t number) {
  if (domain() == nullptr) return;
  std::array<char, 64> numbered{};
  if (number >= 0) {
    std::snprintf(numbered.data(), numbered.size(), "%s %lld", name,
                  static_cast<long long>(number));
    name = numbered.data();
  }
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &range);  // copies the name
}

void end_range() {
  if (domain() != nullptr) nvtxDomainRangePop(domain());
}

}  // namespace anabranch::cuda
