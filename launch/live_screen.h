// A view that fills the terminal and is drawn again and again.
#pragma once

#include <string>

namespace anabranch {

// Takes the terminal of the standard output while it lives, and gives it back as it was. Signals
// that end a program are blocked from its making on in the thread that makes it: see wait().
class LiveScreen {
 public:
  LiveScreen();
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  // Whether there is a terminal to take.
  static bool possible();

  // Draws lines; what is wider or longer than the terminal is cut off.
  void show(const std::string& text);

  [[nodiscard]] size_t width() const;
  [[nodiscard]] size_t height() const;
};

// Blocks INT, TERM, HUP and CHLD in this thread, for next_signal().
void block_signals();

// Waits for so long, or for one of those signals, and returns that, or 0.
int next_signal(double seconds);

// `text` cut to a terminal: its first `height` lines, of each the first `width` characters, each
// ended as a terminal in any mode wants it.
std::string fit_text(const std::string& text, size_t width, size_t height);

}  // namespace anabranch
