// Runs the built program as a user does.
#pragma once

#include <string>

namespace anabranch {

struct ProgramResult {
  int exit_code = -1;
  std::string out, err;
};

// Runs `anabranch` with arguments in the shell's syntax.
//
//   arguments    "config keys"
//   environment  "NAME=value " in front of it
//   dir          where its output is kept for a moment
ProgramResult run_program(const std::string& dir, const std::string& arguments,
                          const std::string& environment = "");

}  // namespace anabranch
