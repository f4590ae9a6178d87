#include "launch/run_display.h"

#include <algorithm>
#include <iostream>
#include <unistd.h>

#include <fmt/format.h>

#include "launch/progress.h"

namespace anabranch {
namespace {

constexpr int kBarWidth = 24;

std::string bar(double part) {
  const auto full = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * kBarWidth);
  return fmt::format("[{:{}}]", std::string(full, '='), kBarWidth);
}

}  // namespace

RunDisplay::RunDisplay() : terminal_(isatty(STDERR_FILENO) == 1) {}

void RunDisplay::line(const std::string& text) const {
  std::cerr << (terminal_ ? "\r\033[K" : "") << text << "\n" << std::flush;
}

void RunDisplay::step(const StepReport& r) {
  seconds_.add(r.seconds);
  const double left = seconds_.of(r.total_steps - r.step);
  if (!r.skipped.empty()) line(skipped_line(r));
  if (terminal_) {
    const double part = static_cast<double>(r.step) / static_cast<double>(r.total_steps);
    std::cerr << fmt::format("\r\033[K{} {}/{}  loss {:.4f}  {} tokens/s{}  {} left", bar(part),
                             r.step, r.total_steps, r.loss, count_text(r.tokens_per_second),
                             mfu_text(r), time_text(left))
              << (r.step == r.total_steps ? "\n" : "") << std::flush;
  } else if (r.logged) {
    line(step_line(r, left));
  }
}

void RunDisplay::eval(const EvalReport& r) { line(eval_line(r)); }

void RunDisplay::save(const SaveReport& r) { line(save_line(r)); }

void RunDisplay::event(const std::string& kind, const std::string& text) {
  line(event_line(kind, text));
}

}  // namespace anabranch
