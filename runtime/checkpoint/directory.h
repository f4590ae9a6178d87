// The folder of a run's checkpoints: what is in it, what is published, what is removed.
//
// A checkpoint is written under a temporary name and renamed when whole, so a folder named
// step-XXXXXXXX was complete once: if its manifest is missing, it is damaged. Temporary names are
// the remains of a job that was killed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace anabranch {

class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  [[nodiscard]] std::filesystem::path at(int64_t step) const;
  // Where the ranks write the checkpoint of a step until it is published.
  [[nodiscard]] std::filesystem::path temporary(int64_t step) const;

  // The steps of published checkpoints, newest first, damaged ones too.
  [[nodiscard]] std::vector<int64_t> steps() const;

  // Syncs and renames the temporary folder of a step; replaces an older one of the same step.
  void publish(int64_t step) const;
  // Removes unpublished remains: of killed jobs at start, or of a save that failed.
  void remove_remains() const;
  // Removes all but the newest `keep_last` checkpoints and, if positive, those whose step is a
  // multiple of `keep_every`. Never removes `newest_good`.
  void prune(int64_t keep_last, int64_t keep_every, int64_t newest_good) const;

 private:
  void remove(const std::filesystem::path& checkpoint) const;

  std::filesystem::path path_;
};

}  // namespace anabranch
