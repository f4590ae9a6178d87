// What a sweep file comes to: its points with their configurations and costs, and their runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/models/model.h"
#include "runtime/sweep/sweep_file.h"

namespace anabranch {

enum class SweepScale : uint8_t { kFull, kTiny };

struct SweepOptions {
  SweepScale scale = SweepScale::kFull;
  int64_t vocabulary = 0;              // to count for; 0: the file's
  std::vector<std::string> sets = {};  // "a.b=c", over every point
  std::string runs = "runs";           // the folder in which pilots have theirs
};

// A configuration without its seed.
struct SweepPoint {
  std::string id, family;
  std::string where;    // its group in the file
  std::string matches;  // the point whose multiply-adds it has, or empty
  // Labels and keys that the file gives it, with their values as names show them.
  std::vector<std::pair<std::string, std::string>> settings;
  Config config;  // run.name and run.dir are not set
  ModelCost cost;
};

struct SweepRun {
  std::string id;  // "<point>-s<seed>", or the point's id if the file has no seeds
  size_t point = 0;
  int64_t seed = 0;
};

struct Sweep {
  std::string name;  // the file's, with "-tiny" at that scale
  std::string path, base;
  int64_t vocabulary = 0;
  std::vector<SweepPoint> points;
  std::vector<SweepRun> runs;  // a point's runs side by side, points in the order of the file
  std::optional<EarlyStop> stop_early;
  std::vector<std::string> chosen;  // what `choose` came to, a sentence each
  // Why values stand as the base has them, for their pilots are not done; empty: none does.
  std::string unchosen;
};

// Expands a sweep. Ids follow from the values of a point alone, not from its place in the file.
// Nothing is allocated for parameters.
//
// Keys of `choose` get the values that their pilots' directories say, after those of the file and
// before those of the command line; while a pilot is not done, the base's stand.
//
// Throws Error (config): a point that `train` would refuse, by its id and with the line; two points
// of one id; a rule that matches nothing; a group left with no points; a name that no key has; a
// point to match that is not there, or that no width matches.
Sweep expand_sweep(const SweepFile& file, const SweepOptions& options = {});

// The whole configuration of a run, in the folder runs/<sweep>/<id>.
Config run_config(const Sweep& sweep, const SweepRun& run);

// Throws Error (config) if values are still to be chosen: before runs are made of it.
void require_chosen(const Sweep& sweep);

// Writes <id>.yaml of each run, a configuration in full, to a folder, which is made if need be.
//
//   header  lines written on top as comments
//
// Throws Error: config if the folder holds other *.yaml, I/O if a file cannot be written.
void write_runs(const Sweep& sweep, const std::string& folder,
                const std::vector<std::string>& header);

// The hidden width, a multiple of 8, at which the model has the nearest to `macs` multiply-adds a
// token. Throws Error (config) if that is none: without a feed-forward part it has more.
int64_t width_for_macs(Config config, int64_t vocabulary, double macs);

}  // namespace anabranch
