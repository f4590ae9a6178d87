// A sweep's directory: what was submitted (sweep.json, configs/), and who decides about its runs.
//
//   runs/<sweep>/sweep.json         runtime/sweep/record.h
//   runs/<sweep>/configs/<id>.yaml  a run's configuration, in full
//   runs/<sweep>/claims/<id>        held while a run is started on this machine and until it ends
//   runs/<sweep>/arrays/            what was submitted to SLURM (launch/slurm_arrays.h)
//   runs/<sweep>/lock               held while it is decided which runs start
//   runs/<sweep>/<id>/              a run's own directory
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/file_lock.h"
#include "runtime/sweep/expand.h"
#include "runtime/sweep/record.h"

namespace anabranch {

class SweepDirectory {
 public:
  explicit SweepDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  // That of a sweep of this name, from the current folder: where run_config() puts the runs.
  static SweepDirectory of(const std::string& name) { return SweepDirectory("runs/" + name); }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] std::filesystem::path run(const std::string& id) const { return path_ / id; }

  [[nodiscard]] std::filesystem::path config(const std::string& id) const {
    return path_ / "configs" / (id + ".yaml");
  }

  [[nodiscard]] std::filesystem::path arrays() const { return path_ / "arrays"; }

  [[nodiscard]] std::filesystem::path claim(const std::string& id) const {
    return path_ / "claims" / id;
  }

  // Waits for its turn to decide. Throws Error (I/O) after a minute, naming who holds it.
  [[nodiscard]] FileLock lock_decisions() const;

  // The right to start a run; none if another has it.
  [[nodiscard]] std::optional<FileLock> take_claim(const std::string& id) const;

  // Writes sweep.json and the configurations. Throws Error (config) if other runs than these were
  // submitted here: it may have fewer points, seeds and steps than now, and nothing else may
  // differ. The decisions are to be locked.
  //
  //   header  lines written on top of configurations as comments
  void submit(const Sweep& sweep, const SweepOptions& options,
              const std::vector<std::string>& header) const;

 private:
  std::filesystem::path path_;
};

}  // namespace anabranch
