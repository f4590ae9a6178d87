#include "runtime/checkpoint/directory.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "step-";
constexpr const char* kTemporary = ".saving-";  // also what is being removed

std::string name_of_step(int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, digits.size() < 8 ? 8 - digits.size() : 0, '0');
  return kPrefix + digits;
}

// The step of a name like step-00001000, or -1.
int64_t step_of(const std::string& name) {
  const size_t skip = std::strlen(kPrefix);
  if (name.size() < skip + 8 || name.rfind(kPrefix, 0) != 0) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + skip, end, step);
  return failure == std::errc() && stop == end ? step : -1;
}

void check(const std::error_code& failure, const char* what, const fs::path& path) {
  if (failure) throw io_error("cannot ", what, " ", path.string(), ": ", failure.message());
}

}  // namespace

fs::path CheckpointDirectory::at(int64_t step) const { return path_ / name_of_step(step); }

fs::path CheckpointDirectory::temporary(int64_t step) const {
  return path_ / (kTemporary + name_of_step(step));
}

std::vector<int64_t> CheckpointDirectory::steps() const {
  std::vector<int64_t> found;
  std::error_code failure;
  for (const auto& item : fs::directory_iterator(path_, failure)) {
    const int64_t step = step_of(item.path().filename().string());
    if (step >= 0) found.push_back(step);
  }
  // An unreadable folder is not an empty one: a run must not start over because of it.
  if (failure && failure != std::errc::no_such_file_or_directory) {
    throw io_error("cannot list ", path_.string(), ": ", failure.message());
  }
  std::ranges::sort(found, std::greater<>());
  return found;
}

void CheckpointDirectory::publish(int64_t step) const {
  sync_folder(temporary(step).string());
  if (fs::exists(at(step))) remove(at(step));
  std::error_code failure;
  fs::rename(temporary(step), at(step), failure);
  check(failure, "publish", at(step));
  sync_folder(path_.string());
}

void CheckpointDirectory::label(int64_t step, const std::vector<std::string>& labels) const {
  for (const std::string& name : labels) {
    const fs::path made = path_ / (kTemporary + name);
    std::error_code failure;
    fs::remove(made, failure);
    fs::create_symlink(name_of_step(step), made, failure);
    if (!failure) fs::rename(made, path_ / name, failure);
    check(failure, "make the link", path_ / name);
  }
  if (!labels.empty()) sync_folder(path_.string());
}

std::set<int64_t> CheckpointDirectory::labelled() const {
  std::set<int64_t> found;
  std::error_code failure;
  for (const auto& item : fs::directory_iterator(path_, failure)) {
    if (!item.is_symlink()) continue;
    const int64_t step = step_of(fs::read_symlink(item.path(), failure).string());
    if (step >= 0) found.insert(step);
  }
  return found;
}

bool CheckpointDirectory::has_label(const std::string& label) const {
  std::error_code failure;
  return fs::exists(path_ / label, failure);
}

void CheckpointDirectory::remove_remains() const {
  std::error_code failure;
  std::vector<fs::path> remains;
  for (const auto& item : fs::directory_iterator(path_, failure)) {
    const std::string name = item.path().filename().string();
    const bool unfinished = name.rfind(kTemporary, 0) == 0;
    const bool dangling = item.is_symlink() && !item.exists(failure);  // its save came to nothing
    if (unfinished || dangling) remains.push_back(item.path());
  }
  for (const fs::path& path : remains) fs::remove_all(path, failure);
}

void CheckpointDirectory::remove(const fs::path& checkpoint) const {
  // Renamed first: a kill in the middle must not leave a folder that looks whole.
  const fs::path doomed = path_ / (kTemporary + checkpoint.filename().string() + ".old");
  std::error_code failure;
  fs::remove_all(doomed, failure);
  fs::rename(checkpoint, doomed, failure);
  check(failure, "remove", checkpoint);
  fs::remove_all(doomed, failure);
}

void CheckpointDirectory::prune(int64_t keep_last, int64_t keep_every, int64_t newest_good) const {
  int64_t kept = 0;
  const std::set<int64_t> labels = labelled();
  for (const int64_t step : steps()) {
    const bool milestone = keep_every > 0 && step % keep_every == 0;
    if (kept++ < keep_last || milestone || step == newest_good || labels.contains(step)) continue;
    remove(at(step));
  }
}

}  // namespace anabranch
