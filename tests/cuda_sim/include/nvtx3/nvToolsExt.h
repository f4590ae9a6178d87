// The part of NVTX, CUDA's marks for profilers, that this project uses; the names are NVTX's.
#pragma once

#include <cstdint>

// NOLINTBEGIN: these names are NVTX's.
inline constexpr uint16_t NVTX_VERSION = 3;
inline constexpr int32_t NVTX_MESSAGE_TYPE_ASCII = 1;

using nvtxDomainHandle_t = struct nvtxDomainRegistration_st*;

struct nvtxEventAttributes_t {
  uint16_t version;
  uint16_t size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType;
  int32_t reserved0;

  union {
    int64_t llValue;
  } payload;

  int32_t messageType;

  union {
    const char* ascii;
  } message;
};

inline constexpr uint16_t NVTX_EVENT_ATTRIB_STRUCT_SIZE = sizeof(nvtxEventAttributes_t);

nvtxDomainHandle_t nvtxDomainCreateA(const char* name);
int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range);
int nvtxDomainRangePop(nvtxDomainHandle_t domain);
// NOLINTEND
