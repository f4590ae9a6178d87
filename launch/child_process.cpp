#include "launch/child_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "runtime/file_lock.h"

namespace anabranch {

namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string entry = *each;
    bool replaced = false;
    for (const auto& [name, value] : more)
      replaced = replaced || entry.starts_with(join(name, "="));
    if (!replaced) all.push_back(entry);
  }
  for (const auto& [name, value] : more) all.push_back(join(name, "=", value));
  return all;
}

// Of the child alone. One that already is that stream must only outlive exec.
void stand_for(int descriptor, int stream) {
  if (descriptor == stream) {
    fcntl(descriptor, F_SETFD, 0);
  } else {
    dup2(descriptor, stream);
  }
}

// Of the child alone: nothing that allocates.
[[noreturn]] void become(char* const* words, char* const* environment, int in, int out, int err,
                         const ChildSetup& setup) {
  if (setup.own_group) setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A shell that starts programs in the background has them ignore INT, and so would the child.
  for (const int signal : {SIGPIPE, SIGINT, SIGQUIT}) std::signal(signal, SIG_DFL);
  if (setup.lock != nullptr) setup.lock->let_children_inherit();
  stand_for(in, STDIN_FILENO);
  if (out >= 0) stand_for(out, STDOUT_FILENO);
  if (err >= 0) stand_for(err, STDERR_FILENO);
  execvpe(words[0], words, environment);
  constexpr int kNotFound = 127;
  _exit(kNotFound);
}

pid_t spawn(const std::vector<std::string>& command, const ChildSetup& setup, int out, int err) {
  std::vector<std::string> words = command, environment = environment_with(setup.environment);
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);
  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0) throw io_error("cannot open /dev/null: ", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) become(argv.data(), envp.data(), in, out, err, setup);
  const int reason = errno;
  close(in);
  if (child < 0) throw io_error("cannot start ", command[0], ": ", std::strerror(reason));
  return child;
}

}  // namespace

int start_child(const std::vector<std::string>& command, const ChildSetup& setup) {
  int out = -1;
  if (!setup.output.empty()) {
    out = open(setup.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (out < 0) throw io_error("cannot write ", setup.output, ": ", std::strerror(errno));
  }
  const pid_t child = spawn(command, setup, out, out);
  if (out >= 0) close(out);
  return child;
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Captured capture(const std::vector<std::string>& command, bool show_errors) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw io_error("no pipe: ", std::strerror(errno));
  const int null = show_errors ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
  const pid_t child = spawn(command, {}, ends[1], null);
  close(ends[1]);
  if (null >= 0) close(null);
  Captured captured;
  std::array<char, 4096> block{};
  for (ssize_t got = 0; (got = read(ends[0], block.data(), block.size())) != 0;) {
    if (got > 0) captured.out.append(block.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  captured.exit_code = exit_code_of(status);
  return captured;
}

}  // namespace anabranch
