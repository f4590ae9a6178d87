// A folder that appears under its name whole or not at all: it is filled under a name beside it.
#pragma once

#include <filesystem>

namespace anabranch {

class StagedFolder {
 public:
  // Makes the folder to fill, and away with what a killed one left there. Throws Error (I/O, 74).
  explicit StagedFolder(const std::filesystem::path& target);
  // Removes it unless it was published.
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return staged_; }

  // Waits for the disk and renames it to the target, which it replaces. Throws Error (I/O, 74);
  // then what was there is as it was.
  void publish();

 private:
  std::filesystem::path target_, staged_, old_;
};

}  // namespace anabranch
