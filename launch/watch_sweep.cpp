#include "launch/watch_sweep.h"

#include <algorithm>
#include <csignal>
#include <iostream>
#include <optional>
#include <vector>

#include "launch/live_screen.h"
#include "launch/sweep_board.h"
#include "launch/sweep_table.h"

namespace anabranch {

namespace {

// The lines of runs whose state is another than was said.
void say_changes(const SweepBoard& board, std::vector<RunPhase>& said) {
  for (size_t r = 0; r < said.size(); ++r) {
    if (board.states()[r].phase == said[r]) continue;
    said[r] = board.states()[r].phase;
    std::cout << run_line(board, r) << "\n";
  }
  std::cout << std::flush;
}

void draw(const SweepBoard& board, LiveScreen& screen) {
  constexpr size_t kBelow = 6;  // totals and failures
  const size_t height = screen.height();
  screen.show(sweep_table(board, height > kBelow + 1 ? height - kBelow : 1));
}

}  // namespace

void watch_sweep(SweepBoard& board, double every, bool steer) {
  std::optional<LiveScreen> screen;
  if (LiveScreen::possible()) screen.emplace();
  block_signals();
  std::vector<RunPhase> said(board.states().size(), RunPhase::kWaiting);
  while (true) {
    board.look();
    if (screen) {
      draw(board, *screen);
    } else {
      say_changes(board, said);
    }
    if (steer) {
      for (const std::string& id : board.apply_rule()) {
        if (!screen) std::cout << id << ": told to stop, by the rule\n" << std::flush;
      }
      if (std::ranges::none_of(board.states(), &RunState::in_hand)) return;
    } else if (!screen && std::ranges::all_of(board.states(), &RunState::over)) {
      return;
    }
    const int signal = next_signal(every);
    if (signal != 0 && signal != SIGCHLD) return;
  }
}

}  // namespace anabranch
