// The training loop of one rank.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "monitoring/gpu_metrics.h"
#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/config/config.h"
#include "runtime/reports.h"
#include "runtime/resume.h"
#include "runtime/run_directory.h"
#include "runtime/stop_request.h"

namespace anabranch {

// Everything a run needs from outside. References must outlive train().
struct TrainJob {
  const Config& config;
  std::map<std::string, std::string> facts;  // versions, git hash, host: kept in each checkpoint
  Resume resume = Resume::kAuto;
  std::pair<int64_t, int64_t> profile{-1, -1};  // first and last step, from 1, to trace; -1: none
  RankContext& context;
  Group& world;
  RunDirectory& directory;
  StopRequest& stop;
  std::vector<ReportSink*> sinks;
  // What is known of this rank's GPU now; on all ranks or none.
  std::function<GpuReading()> gpu = {};
  std::function<void()> on_start = {};  // once the run is accepted: data and checkpoint fit
  // Ends this process with an exit code, at once, from any thread: for a rank that hangs.
  std::function<void(int)> give_up = {};
};

// Trains until the last step, a request to stop, or a failure, and leaves a verified checkpoint of
// where it stopped. Collective. Returns what the process should exit with: 0 when done, kSaved (75)
// or kInterrupted (130) when stopped on request. Throws Error with the exit code of what went
// wrong: kInternal (70) after too many non-finite steps or if ranks' weights differ, kPeer (69) if
// another rank is lost or hangs, kIo (74) if a last save failed.
int train(const TrainJob& job);

}  // namespace anabranch
