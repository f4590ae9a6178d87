#include "monitoring/nvml.h"

#include <algorithm>
#include <cstdint>
#include <dlfcn.h>
#include <limits>

#include "core/base/error.h"

// NVML's own names and numbers.
// NOLINTBEGIN(readability-identifier-naming)
struct nvmlEventSet_st;

namespace anabranch {
namespace {

using Return = int;
constexpr Return kSuccess = 0;

struct Utilisation {
  unsigned gpu, memory;  // percent
};

struct MemoryInfo {
  unsigned long long total, free, used;
};

struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type;
  Return result;

  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_long;
  } value;
};

struct EventData {
  nvmlDevice_st* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

constexpr int kTemperatureOfGpu = 0;
constexpr int kClockOfSm = 1, kClockOfMemory = 2;
constexpr int kSent = 0, kReceived = 1;
constexpr int kCorrected = 0, kUncorrected = 1;
constexpr int kSinceDriverBegan = 0;
constexpr unsigned kNvlinkSent = 138, kNvlinkReceived = 139;  // KiB of data over links
constexpr unsigned kAllLinks = ~0U;
constexpr unsigned kMostLinks = 18;
constexpr int kTypeDouble = 0, kTypeUnsigned = 1;
constexpr unsigned long long kXid = 0x8;

constexpr unsigned long long kPowerReasons = 0x4 | 0x80;     // cap; brake
constexpr unsigned long long kThermalReasons = 0x20 | 0x40;  // by software; by hardware
constexpr unsigned long long kHardwareReasons = 0x8;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double number_of(const FieldValue& v) {
  if (v.result != kSuccess) return kUnknown;
  if (v.type == kTypeDouble) return v.value.as_double;
  if (v.type == kTypeUnsigned) return v.value.as_unsigned;
  return static_cast<double>(v.value.as_long);
}

// A function of the library, or null: it may be older than a function, or newer than a name.
template <class F>
struct Function {
  F* function = nullptr;

  void find(void* library, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (function == nullptr) function = reinterpret_cast<F*>(dlsym(library, name));
    }
  }

  template <class... A>
  [[nodiscard]] bool operator()(A... arguments) const {
    return function != nullptr && function(arguments...) == kSuccess;
  }
};

}  // namespace

struct Nvml::Functions {
  void* library = nullptr;
  Function<Return()> init, shutdown;
  Function<Return(char*, unsigned)> driver_version;
  Function<Return(const char*, Handle*)> by_pci;
  Function<Return(Handle, Utilisation*)> utilisation;
  Function<Return(Handle, MemoryInfo*)> memory;
  Function<Return(Handle, unsigned*)> power;
  Function<Return(Handle, int, unsigned*)> temperature, clock, pcie;
  Function<Return(Handle, int, int, unsigned long long*)> ecc;
  Function<Return(Handle, unsigned long long*)> reasons;
  Function<Return(Handle, int, FieldValue*)> fields;
  Function<Return(Handle, unsigned, int*)> link_state;
  Function<Return(nvmlEventSet_st**)> make_events;
  Function<Return(nvmlEventSet_st*)> free_events;
  Function<Return(Handle, unsigned long long, nvmlEventSet_st*)> watch;
  Function<Return(nvmlEventSet_st*, EventData*, unsigned)> wait;

  explicit Functions(void* opened) : library(opened) {
    init.find(library, {"nvmlInit_v2"});
    shutdown.find(library, {"nvmlShutdown"});
    driver_version.find(library, {"nvmlSystemGetDriverVersion"});
    by_pci.find(library, {"nvmlDeviceGetHandleByPciBusId_v2"});
    utilisation.find(library, {"nvmlDeviceGetUtilizationRates"});
    memory.find(library, {"nvmlDeviceGetMemoryInfo"});
    power.find(library, {"nvmlDeviceGetPowerUsage"});
    temperature.find(library, {"nvmlDeviceGetTemperature"});
    clock.find(library, {"nvmlDeviceGetClockInfo"});
    pcie.find(library, {"nvmlDeviceGetPcieThroughput"});
    ecc.find(library, {"nvmlDeviceGetTotalEccErrors"});
    reasons.find(library, {"nvmlDeviceGetCurrentClocksEventReasons",
                           "nvmlDeviceGetCurrentClocksThrottleReasons"});
    fields.find(library, {"nvmlDeviceGetFieldValues"});
    link_state.find(library, {"nvmlDeviceGetNvLinkState"});
    make_events.find(library, {"nvmlEventSetCreate"});
    free_events.find(library, {"nvmlEventSetFree"});
    watch.find(library, {"nvmlDeviceRegisterEvents"});
    wait.find(library, {"nvmlEventSetWait_v2"});
  }
};

// NOLINTEND(readability-identifier-naming)

struct Nvml::Events {
  nvmlEventSet_st* set = nullptr;
  bool watching = false;
  double xids = 0;
};

Nvml::Nvml(const std::string& library) : events_(std::make_unique<Events>()) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    why_not_ = dlerror();
    return;
  }
  call_ = std::make_unique<Functions>(opened);
  if (!call_->init()) why_not_ = library + " does not start: it finds no driver or no GPU";
}

Nvml::~Nvml() {
  if (call_ == nullptr) return;
  if (events_->set != nullptr) (void)call_->free_events(events_->set);
  if (why_not_.empty()) (void)call_->shutdown();
  dlclose(call_->library);
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  const bool known = why_not_.empty() &&
                     call_->driver_version(text.data(), static_cast<unsigned>(text.size() - 1));
  return known ? text.data() : "";
}

Nvml::Handle Nvml::find(const std::string& pci) {
  Handle gpu = nullptr;
  if (!why_not_.empty() || !call_->by_pci(pci.c_str(), &gpu)) return nullptr;
  if (events_->set == nullptr && !call_->make_events(&events_->set)) return gpu;
  events_->watching = call_->watch(gpu, kXid, events_->set) || events_->watching;
  return gpu;
}

void Nvml::count_xids() {
  EventData event{};
  constexpr int kMostAtOnce = 1000;  // a driver that repeats itself does not hold us
  for (int i = 0; i < kMostAtOnce && call_->wait(events_->set, &event, 0U); ++i) ++events_->xids;
}

GpuReading Nvml::read(Handle gpu) {
  GpuReading figures = unknown_gpu();
  if (gpu == nullptr) return figures;
  const auto set = [&](Metric metric, double value) {
    figures[static_cast<size_t>(metric) - static_cast<size_t>(kGpuMetrics[0].id)] = value;
  };
  constexpr double kKilo = 1e3, kMega = 1e6, kKibi = 1024;
  Utilisation busy{};
  if (call_->utilisation(gpu, &busy)) set(Metric::kGpuUtilisation, busy.gpu / 100.0);
  MemoryInfo memory{};
  if (call_->memory(gpu, &memory)) {
    set(Metric::kGpuMemoryUsed, static_cast<double>(memory.used));
    set(Metric::kGpuMemory, static_cast<double>(memory.total));
  }
  unsigned n = 0;
  if (call_->power(gpu, &n)) set(Metric::kGpuPower, n / kKilo);
  if (call_->temperature(gpu, kTemperatureOfGpu, &n)) set(Metric::kGpuTemperature, n);
  if (call_->clock(gpu, kClockOfSm, &n)) set(Metric::kGpuClock, n * kMega);
  if (call_->clock(gpu, kClockOfMemory, &n)) set(Metric::kGpuMemoryClock, n * kMega);
  if (call_->pcie(gpu, kSent, &n)) set(Metric::kGpuPcieSent, n * kKilo);
  if (call_->pcie(gpu, kReceived, &n)) set(Metric::kGpuPcieReceived, n * kKilo);
  std::array<FieldValue, 2> links{};
  links[0].field = kNvlinkSent;
  links[1].field = kNvlinkReceived;
  for (FieldValue& link : links) link.scope = kAllLinks;
  if (call_->fields(gpu, 2, links.data())) {
    set(Metric::kGpuNvlinkSent, number_of(links[0]) * kKibi);
    set(Metric::kGpuNvlinkReceived, number_of(links[1]) * kKibi);
  }
  unsigned long long count = 0;
  for (const auto& [kind, metric] : {std::pair{kCorrected, Metric::kGpuEccCorrected},
                                     std::pair{kUncorrected, Metric::kGpuEccUncorrected}}) {
    if (call_->ecc(gpu, kind, kSinceDriverBegan, &count)) set(metric, static_cast<double>(count));
  }
  if (events_->watching) {
    count_xids();
    set(Metric::kGpuXid, events_->xids);
  }
  if (call_->reasons(gpu, &count)) {
    const std::array causes{kPowerReasons, kThermalReasons, kHardwareReasons};
    static_assert(causes.size() == kThrottleCauses.size());
    std::ranges::transform(causes, figures.begin() + kGpuSpreads + kGpuSums,
                           [&](auto cause) { return (count & cause) != 0 ? 1.0 : 0.0; });
  }
  return figures;
}

int Nvml::nvlinks(Handle gpu) const {
  if (gpu == nullptr || call_->link_state.function == nullptr) return -1;
  int up = 0;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int on = 0;
    if (call_->link_state(gpu, link, &on) && on == 1) ++up;
  }
  return up;
}

}  // namespace anabranch
