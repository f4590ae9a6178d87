#include "runtime/interchange/staged_folder.h"

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

// The folder itself, also where the path ends with a slash or leads over a link.
fs::path resolved(const fs::path& path) {
  std::error_code failure;
  fs::path whole = fs::weakly_canonical(fs::absolute(path), failure);
  if (failure) throw io_error("cannot look at ", path.string(), ": ", failure.message());
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

StagedFolder::StagedFolder(const fs::path& target) : target_(resolved(target)) {
  const std::string name = target_.filename().string();
  staged_ = target_.parent_path() / ("." + name + ".staged");
  old_ = target_.parent_path() / ("." + name + ".old");
  std::error_code failure;
  fs::remove_all(staged_, failure);
  if (!failure) fs::create_directories(staged_, failure);
  if (failure) throw io_error("cannot create ", staged_.string(), ": ", failure.message());
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  fs::remove_all(staged_, ignored);
}

void StagedFolder::publish() {
  sync_folder(staged_.string());
  std::error_code failure, ignored;
  fs::remove_all(old_, ignored);
  const bool replaces = fs::exists(target_);
  if (replaces) fs::rename(target_, old_, failure);
  if (!failure) {
    fs::rename(staged_, target_, failure);
    if (failure && replaces) fs::rename(old_, target_, ignored);
  }
  if (failure) throw io_error("cannot rename to ", target_.string(), ": ", failure.message());
  sync_folder(target_.parent_path().string());
  fs::remove_all(old_, ignored);
}

}  // namespace anabranch
