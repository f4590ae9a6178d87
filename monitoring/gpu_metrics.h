// The table's part that only runs on GPUs have, and what NVML says of one.
#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "monitoring/metric_spec.h"

namespace anabranch {

// In the order of GpuReading: spreads, then sums, then the causes of kGpusThrottled.
inline constexpr std::array kGpuMetrics{
    MetricSpec{Metric::kGpuUtilisation, "gpu_utilisation_ratio", MetricType::kGauge,
               MetricLabel::kStat, "Part of the last moments in which a GPU computed, over ranks."},
    MetricSpec{Metric::kGpuMemoryUsed, "gpu_memory_used_bytes", MetricType::kGauge,
               MetricLabel::kStat, "Memory of a GPU that is taken, by any process, over ranks."},
    MetricSpec{Metric::kGpuMemory, "gpu_memory_bytes", MetricType::kGauge, MetricLabel::kStat,
               "Memory of a GPU, over ranks."},
    MetricSpec{Metric::kGpuPower, "gpu_power_watts", MetricType::kGauge, MetricLabel::kStat,
               "Power that a GPU draws, over ranks."},
    MetricSpec{Metric::kGpuTemperature, "gpu_temperature_celsius", MetricType::kGauge,
               MetricLabel::kStat, "Temperature of a GPU, over ranks."},
    MetricSpec{Metric::kGpuClock, "gpu_sm_clock_hertz", MetricType::kGauge, MetricLabel::kStat,
               "Clock of a GPU's multiprocessors, over ranks."},
    MetricSpec{Metric::kGpuMemoryClock, "gpu_memory_clock_hertz", MetricType::kGauge,
               MetricLabel::kStat, "Clock of a GPU's memory, over ranks."},
    MetricSpec{Metric::kGpuPcieSent, "gpu_pcie_sent_bytes_per_second", MetricType::kGauge,
               MetricLabel::kStat, "What a GPU sends over PCIe, over ranks."},
    MetricSpec{Metric::kGpuPcieReceived, "gpu_pcie_received_bytes_per_second", MetricType::kGauge,
               MetricLabel::kStat, "What a GPU receives over PCIe, over ranks."},
    MetricSpec{Metric::kGpuNvlinkSent, "gpu_nvlink_sent_bytes_total", MetricType::kCounter,
               MetricLabel::kNone, "Sent over NVLink by the ranks' GPUs since their driver began."},
    MetricSpec{Metric::kGpuNvlinkReceived, "gpu_nvlink_received_bytes_total", MetricType::kCounter,
               MetricLabel::kNone,
               "Received over NVLink by the ranks' GPUs since their driver began."},
    MetricSpec{Metric::kGpuEccCorrected, "gpu_ecc_corrected_errors_total", MetricType::kCounter,
               MetricLabel::kNone,
               "Errors of memory that the ranks' GPUs corrected since their driver began."},
    MetricSpec{Metric::kGpuEccUncorrected, "gpu_ecc_uncorrected_errors_total", MetricType::kCounter,
               MetricLabel::kNone,
               "Errors of memory that the ranks' GPUs could not correct since their driver began."},
    MetricSpec{Metric::kGpuXid, "gpu_xid_errors_total", MetricType::kCounter, MetricLabel::kNone,
               "Critical errors (XID) that the driver reported of the ranks' GPUs in this run."},
    MetricSpec{Metric::kGpusThrottled, "gpus_throttled", MetricType::kGauge, MetricLabel::kCause,
               "Ranks whose GPU's clocks are held down."},
};

// Why a GPU's clocks are held down; kIdle and what users set are no causes.
inline constexpr std::array kThrottleCauses{"power", "thermal", "hardware"};

inline constexpr size_t kGpuSpreads = 9;  // the metrics with min, median and max over ranks
inline constexpr size_t kGpuSums = 5;     // those that are added up
inline constexpr size_t kGpuFigures = kGpuSpreads + kGpuSums + kThrottleCauses.size();
static_assert(kGpuMetrics.size() == kGpuSpreads + kGpuSums + 1);

// The figures of one GPU, in units of the table; not-a-number: unknown. A cause is 1 or 0.
using GpuReading = std::array<double, kGpuFigures>;

constexpr GpuReading unknown_gpu() {
  GpuReading reading{};
  reading.fill(std::numeric_limits<double>::quiet_NaN());
  return reading;
}

}  // namespace anabranch
