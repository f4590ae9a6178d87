#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "runtime/sweep/expand.h"

namespace anabranch {

namespace fs = std::filesystem;

void write_runs(const Sweep& sweep, const std::string& folder,
                const std::vector<std::string>& header) {
  std::set<std::string> names;
  for (const SweepRun& run : sweep.runs) names.insert(run.id + ".yaml");
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw io_error("cannot make the folder ", folder, ": ", failure.message());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".yaml" || names.contains(name)) continue;
    throw config_error(folder, " holds ", name, ", which is no run of ", sweep.path,
                       ": give another folder, or remove it");
  }
  for (const SweepRun& run : sweep.runs) {
    const SweepPoint& point = sweep.points[run.point];
    std::vector<std::string> lines = header;
    lines.push_back(join("run ", run.id, " of ", sweep.path, ", family ", point.family));
    write_atomically((fs::path(folder) / (run.id + ".yaml")).string(),
                     dump_config(run_config(sweep, run), lines));
  }
}

}  // namespace anabranch
