// The folder of a run's checkpoints: what is in it, what is published, what is removed.
//
// A checkpoint is written under a temporary name and renamed when whole, so a folder named
// step-XXXXXXXX was complete once: if its manifest is missing, it is damaged. Temporary names are
// the remains of a job that was killed. Any other name is a label: a link to a checkpoint that is
// kept for good.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
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
  // Gives the checkpoint of a step names of its own, before or after it is published; a name that
  // another checkpoint has moves to this one.
  void label(int64_t step, const std::vector<std::string>& labels) const;
  // The steps that have a label, each once.
  [[nodiscard]] std::set<int64_t> labelled() const;
  [[nodiscard]] bool has_label(const std::string& label) const;

  // Removes unpublished remains: of killed jobs at start, or of a save that failed.
  void remove_remains() const;
  // Removes all but the newest `keep_last` checkpoints, those with a label and, if positive, those
  // whose step is a multiple of `keep_every`. Never removes `newest_good`.
  void prune(int64_t keep_last, int64_t keep_every, int64_t newest_good) const;

 private:
  void remove(const std::filesystem::path& checkpoint) const;

  std::filesystem::path path_;
};

}  // namespace anabranch
