// Where the job scripts are that belong to this program.
#pragma once

#include <filesystem>
#include <string>

namespace anabranch {

// What the scripts are to run: AB_PROGRAM, or this program.
std::string program_for_scripts();

// The folder launch/ of AB_HOME, or of the tree that the program was built in. Throws Error (usage)
// if neither has its scripts.
std::filesystem::path launch_folder();

}  // namespace anabranch
