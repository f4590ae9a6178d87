// Where the ranks of a job compute: on the processor, or each on a GPU of its host.
//
// Rank r of a host takes GPU r; a process that sees one GPU alone, because CUDA_VISIBLE_DEVICES
// names that, takes it. All ranks compute on one kind of device.
#pragma once

#include <string>
#include <vector>

#include "core/tensor/device.h"
#include "core/tensor/gpus.h"
#include "parallel/topology.h"
#include "runtime/config/config.h"

namespace anabranch {

// Whether all that a run of this configuration does can be done on GPUs. The one place that says
// so: where it is false, `auto` is the processor and `cuda` is refused. On CPUs alone runs
// train.deterministic: layout.
bool runs_on_gpu(const Config& config);

struct DeviceWish {
  DeviceChoice asked = DeviceChoice::kAuto;
  bool able = false;                        // whether the work runs on GPUs
  const char* instead = "set device: cpu";  // what refusals advise
  const char* by = "device";                // the key or variable that asks
};

DeviceWish device_wish(const Config& config);

// The same for ranks that only run a model. Each has all of it and nothing of a step is done, so
// what trains on CPUs alone, train.deterministic: layout too, runs on GPUs.
DeviceWish inference_wish(const Config& config);

struct DevicePlan {
  Device mine;  // this rank's; all below is equal on all ranks
  std::string why = "as device says";
  std::vector<std::string> of_rank;   // what each launched rank computes on; empty: the processor
  std::vector<std::string> warnings;  // about GPUs that are hidden

  // "cuda, auto: every rank has a GPU; 8 NVIDIA H200"; "cpu, auto: no driver is installed".
  [[nodiscard]] std::string text() const;
  // "8 NVIDIA H200"; "cpu".
  [[nodiscard]] std::string hardware() const;
};

// Collective; every rank passes the same wish.
//
//   seen    the GPUs of this process
//   places  which ranks share a host
//
// Throws Error (config, 78) on all ranks, with the numbers, if a GPU was asked for that a rank has
// not, if only some ranks have one, or if a host has more ranks than its processes see GPUs.
DevicePlan choose_devices(const DeviceWish& wish, const GpuSight& seen, const Topology& places,
                          Group& world);

}  // namespace anabranch
