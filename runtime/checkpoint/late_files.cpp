#include "runtime/checkpoint/late_files.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/patience.h"
#include "parallel/topology.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

constexpr auto kLook = std::chrono::milliseconds(50);

bool is_seen(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

// The names of all files in `folder` that some rank is told of.
std::set<std::string> names_in(const fs::path& folder, Group& world) {
  std::string mine;
  // A folder that cannot be read to its end here ends early: if this rank threw alone, the others
  // would wait for it below.
  std::error_code ignored;
  for (fs::directory_iterator item(folder, ignored), end; item != end; item.increment(ignored)) {
    mine += item->path().filename().string() + "\n";
  }
  return lines_of_all(world, mine);
}

}  // namespace

bool wait_for_file(const fs::path& file, double seconds) {
  Patience waited;
  while (!is_seen(file)) {
    if (waited.tick() > seconds) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void wait_until_all_see(const fs::path& folder, Group& world,
                        const std::function<void(const std::string&)>& tell, double seconds) {
  if (world.size() == 1) return;
  const std::set<std::string> names = names_in(folder, world);
  Patience waited;
  for (bool told = false;; told = true) {
    std::string mine;
    for (const std::string& name : names) mine += is_seen(folder / name) ? '1' : '0';
    // Rank 0 says when it has been long enough, so that all stop waiting together.
    mine += waited.tick() > seconds ? '!' : '.';
    const std::vector<std::string> all = gather_text(world, mine);
    bool alike = true;
    for (size_t i = 0; i < names.size(); ++i) {
      alike = alike && std::ranges::all_of(all, [&](const auto& s) { return s[i] == all[0][i]; });
    }
    if (alike || all.front().back() == '!') return;
    if (!told) {
      tell(join(folder.string(), ": some ranks do not see all of its files yet; waiting for up to ",
                seconds, " s"));
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace anabranch
