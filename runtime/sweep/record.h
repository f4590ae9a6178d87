// A sweep as it was submitted: sweep.json of its directory, for whoever looks at its runs later.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/sweep/expand.h"

namespace anabranch {

struct RecordedPoint {
  std::string id, family, type;  // the type is model.type
  std::string matches;           // as SweepPoint's
  std::vector<std::pair<std::string, std::string>> settings;
  int64_t layers = 0, width = 0, ffn_width = 0, context = 0;
  ModelCost cost;
  int64_t steps = 0, batch_tokens = 0;  // of a run

  // The value of a label or key, or the family; empty: the file gives the point none.
  [[nodiscard]] std::string setting(const std::string& key) const;

  [[nodiscard]] int64_t tokens() const { return steps * batch_tokens; }
};

struct SweepRecord {
  std::string name, file, base;  // paths as they were given
  SweepScale scale = SweepScale::kFull;
  std::vector<std::string> sets;  // over every point, besides the file's
  int64_t vocabulary = 0;
  std::vector<RecordedPoint> points;
  std::vector<SweepRun> runs;
  std::optional<EarlyStop> stop_early;
};

// Throws Error (config) if a point's batch does not divide among one rank.
SweepRecord record_of(const Sweep& sweep, const SweepOptions& options);

// As JSON, which read_record() takes. `sweep expand --json` prints it.
std::string record_json(const SweepRecord& record);

// The record of a sweep's directory, DIR/sweep.json. Throws data_error if there is none, or one
// that is damaged.
SweepRecord read_record(const std::string& folder);

}  // namespace anabranch
