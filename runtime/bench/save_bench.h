// What an asynchronous save costs the training beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/config/config.h"
#include "runtime/stop_request.h"

namespace anabranch {

// One save, on this rank.
struct SaveCost {
  double stall_seconds = 0;          // training stood still: the copy
  double write_seconds = 0;          // beside training
  std::vector<double> step_seconds;  // of the steps that ran while it was written
};

struct SaveBench {
  int64_t bytes = 0;                 // of this rank's file
  std::vector<double> step_seconds;  // without a save
  SaveCost first;                    // makes the copies' memory, which later saves reuse
  std::vector<SaveCost> later;

  // Medians over the later saves: the stall, the write, and what training lost in all, which is
  // the stall and the time by which steps beside the write were slower.
  [[nodiscard]] double stall() const;
  [[nodiscard]] double write() const;
  [[nodiscard]] double lost() const;
  // The median of the steps beside a save; 0 if all were over before a step was.
  [[nodiscard]] double step_beside() const;
};

struct SaveBenchOptions {
  int64_t vocabulary = 50257;
  std::filesystem::path folder;  // which all ranks see and the caller removes
  int64_t steps = 3;             // without a save, after one that does not count
  int64_t saves = 3;             // in all, at least 2
};

// Trains the configured model on random tokens and saves it. Collective. Returns nothing if a rank
// was asked to stop. Throws Error (I/O, 74) if saving failed.
std::optional<SaveBench> bench_save(const Config& config, const SaveBenchOptions& options,
                                    Group& world, RankContext& context, const StopRequest& stop);

}  // namespace anabranch
