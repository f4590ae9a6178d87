// Programs that this one starts.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace anabranch {

class FileLock;

struct ChildSetup {
  std::vector<std::pair<std::string, std::string>> environment = {};  // besides this process's
  std::string output = {};         // file to which both streams are appended; empty: as ours
  const FileLock* lock = nullptr;  // held by the child too, and by all that it starts
  bool own_group = false;          // Ctrl-C at the terminal does not reach it
};

// Starts a program, found on the path, with no signal blocked and nothing to read, and returns its
// process. One that cannot be started ends with 127. Throws Error (I/O) if the system has no room
// for another process.
int start_child(const std::vector<std::string>& command, const ChildSetup& setup);

// The exit code of what waitpid() tells: 128 + the signal where one ended it.
int exit_code_of(int status);

struct Captured {
  int exit_code = -1;
  std::string out;
};

// Runs a program to its end; its errors go where ours do, unless they are left out.
Captured capture(const std::vector<std::string>& command, bool show_errors);

}  // namespace anabranch
