#include "tests/launch/run_program.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sys/wait.h>

namespace anabranch {

namespace {

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

ProgramResult run_program(const std::string& dir, const std::string& arguments,
                          const std::string& environment) {
  const std::string out = dir + "/out.txt";
  const std::string err = dir + "/err.txt";
  const std::string command = "cd " + dir + " && " + environment + " " + AB_PROGRAM + " " +
                              arguments + " > " + out + " 2> " + err + " < /dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(out),
          content(err)};
}

}  // namespace anabranch
