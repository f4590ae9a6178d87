#include "tests/support/process.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

namespace anabranch::test {
namespace {

const char* const kMark = "AB_TEST_PROCESS";

// "NAME=value" strings of a live process; empty for one that has ended.
std::vector<std::string> environment_of(const std::filesystem::path& folder) {
  std::ifstream in(folder / "environ", std::ios::binary);
  std::vector<std::string> all;
  for (std::string item; std::getline(in, item, '\0');) all.push_back(item);
  return all;
}

bool has(const std::vector<std::string>& environment, const std::string& item) {
  return std::ranges::find(environment, item) != environment.end();
}

// Calls `f(pid, environment)` for every process that can be looked into.
template <class F>
void for_each_process(const F& f) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const char* end = name.data() + name.size();
    if (std::from_chars(name.data(), end, pid).ptr == end) f(pid, environment_of(entry.path()));
  }
}

[[noreturn]] void become(const std::vector<std::string>& command, const std::string& output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int in = open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  _exit(127);
}

}  // namespace

void pause_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

Process::Process(const std::vector<std::string>& command, std::string output,
                 const Environment& environment)
    : output_(std::move(output)), mark_(output_ + "-" + std::to_string(getpid())) {
  std::filesystem::remove(output_);  // output() must not show an earlier program's
  id_ = fork();
  if (id_ != 0) return;
  setpgid(0, 0);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  setenv(kMark, mark_.c_str(), 1);
  become(command, output_);
}

Process::~Process() {
  // Again until none is left: one may start another meanwhile.
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<pid_t> left = members();
    if (left.empty()) break;
    for (const pid_t pid : left) kill(pid, SIGKILL);
    if (!exit_code_) waitpid(id_, nullptr, WNOHANG);
    pause_for(0.01);
  }
  if (!exit_code_) waitpid(id_, nullptr, 0);
}

std::optional<int> Process::ended() {
  int status = 0;
  if (!exit_code_ && waitpid(id_, &status, WNOHANG) == id_) {
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return exit_code_;
}

int Process::wait() {
  if (!soon([&] { return ended().has_value(); })) {
    ADD_FAILURE() << "still running after " << kWatchdogSeconds << " s; killed. It wrote:\n"
                  << output();
    for (const pid_t pid : members()) kill(pid, SIGKILL);
    soon([&] { return ended().has_value(); });
  }
  return exit_code_.value_or(-1);
}

std::string Process::output() const {
  std::ifstream in(output_, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<pid_t> Process::members() const {
  std::vector<pid_t> all;
  for_each_process([&](pid_t pid, const std::vector<std::string>& environment) {
    if (has(environment, kMark + ("=" + mark_))) all.push_back(pid);
  });
  return all;
}

pid_t Process::rank(int number) const {
  pid_t found = 0;
  for_each_process([&](pid_t pid, const std::vector<std::string>& environment) {
    const bool is_rank = has(environment, "OMPI_COMM_WORLD_RANK=" + std::to_string(number));
    if (is_rank && has(environment, kMark + ("=" + mark_))) found = pid;
  });
  return found;
}

size_t Process::left_behind() const {
  constexpr double kGrace = 20;
  soon([&] { return members().empty(); }, kGrace);
  return members().size();
}

}  // namespace anabranch::test
