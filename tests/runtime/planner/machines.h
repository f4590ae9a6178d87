// A machine of round numbers, and small configurations to plan for it.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/planner/machine.h"

namespace anabranch::test {

// GPUs of 1 TFLOP/s and 1 GB, two a host; links of 1 GB/s within a host and 0.1 GB/s between.
inline Machine tiny_machine() {
  const auto figure = [](double value) { return Figure{value, "made up"}; };
  Machine m;
  m.name = "tiny";
  m.about = "round \"numbers\"";
  m.device.peak.fp64 = figure(1e11);
  m.device.peak.fp32 = figure(1e12);
  m.device.peak.bf16 = figure(2e12);
  m.device.product_share = figure(0.5);
  m.device.attention_share = figure(0.25);
  m.device.call_seconds = figure(1e-6);
  m.device.memory = figure(1e9);
  m.device.bandwidth = figure(1e11);
  m.device.bandwidth_share = figure(0.5);
  m.device.overlap = figure(1);
  m.host.devices = figure(2);
  m.host.cores = figure(4);
  m.links = {{LinkLevel::kHost, figure(1e-5), {{1000, 1e9, "made up"}, {1e9, 1e9, "made up"}}},
             {LinkLevel::kNetwork, figure(1e-4), {{1000, 1e8, "made up"}, {1e9, 1e8, "made up"}}}};
  return m;
}

// A configuration of `model` keys with "a.b=c" over it; 16 sequences of 16 tokens a step, one at a
// time, unless those say otherwise.
inline Config planned(const std::string& model, const std::vector<std::string>& sets = {}) {
  return parse_config("data: {path: none}\nmodel: {layers: 2, width: 32, heads: 2, context: 16, " +
                          model + "}\ntrain: {steps: 1, batch_tokens: 256, micro_batch: 1}\n",
                      "planned", sets);
}

}  // namespace anabranch::test
