#include "launch/live_screen.h"

#include <cmath>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

namespace anabranch {

namespace {

winsize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  constexpr unsigned short kRows = 24, kColumns = 80;
  if (size.ws_row == 0) size.ws_row = kRows;
  if (size.ws_col == 0) size.ws_col = kColumns;
  return size;
}

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Characters, not bytes: how many bytes the first `width` of them have.
size_t bytes_of(const std::string& line, size_t width) {
  size_t characters = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(line[i]) & 0xC0U) != 0x80U;
    if (begins && characters++ == width) return i;
  }
  return line.size();
}

}  // namespace

void block_signals() {
  const sigset_t set = ending_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int next_signal(double seconds) {
  const sigset_t set = ending_signals();
  const double whole = std::floor(seconds);
  const timespec limit{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  const int signal = sigtimedwait(&set, nullptr, &limit);
  return signal < 0 ? 0 : signal;
}

std::string fit_text(const std::string& text, size_t width, size_t height) {
  std::istringstream in(text);
  std::string fitted, line;
  for (size_t row = 0; row < height && std::getline(in, line); ++row) {
    fitted += (row > 0 ? "\r\n" : "") + line.substr(0, bytes_of(line, width)) + "\033[K";
  }
  return fitted;
}

bool LiveScreen::possible() { return isatty(STDOUT_FILENO) == 1; }

LiveScreen::LiveScreen() {
  block_signals();
  put("\033[?1049h\033[?25l\033[2J");  // the other screen, no cursor, empty
}

LiveScreen::~LiveScreen() { put("\033[?25h\033[?1049l"); }

size_t LiveScreen::width() const { return terminal_size().ws_col; }

size_t LiveScreen::height() const { return terminal_size().ws_row; }

void LiveScreen::show(const std::string& text) {
  put("\033[H" + fit_text(text, width(), height()) + "\033[J");
}

}  // namespace anabranch
