// Files that other hosts have written: a shared disk (NFS and the like) may show them late, since a
// host keeps for a while what it was told of a folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "parallel/comm/group.h"

namespace anabranch {

// How long what is there is waited for, in seconds: longer than NFS keeps what it knows of folders.
inline constexpr double kLateSeconds = 90;

// Waits until a file that another rank has written is seen here; false if it never is.
bool wait_for_file(const std::filesystem::path& file, double seconds = kLateSeconds);

// Waits until every rank sees each file of `folder` that any of them sees, and tells so once if
// there is one to wait for. Collective. What no rank sees is missing, and is not waited for.
void wait_until_all_see(const std::filesystem::path& folder, Group& world,
                        const std::function<void(const std::string&)>& tell,
                        double seconds = kLateSeconds);

}  // namespace anabranch
