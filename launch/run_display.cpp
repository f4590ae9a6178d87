#include "launch/run_display.h"

#include <algorithm>
#include <iostream>
#include <unistd.h>

#include <fmt/format.h>

namespace anabranch {
namespace {

constexpr int kBarWidth = 24;
constexpr double kSmoothing = 0.1;  // the newest step's part in the mean

std::string bar(double part) {
  const auto full = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * kBarWidth);
  return fmt::format("[{:{}}]", std::string(full, '='), kBarWidth);
}

std::string mfu_text(const StepReport& r) {
  return r.mfu < 0 ? "" : fmt::format("  mfu {:.1f}%", 100 * r.mfu);
}

}  // namespace

RunDisplay::RunDisplay() : terminal_(isatty(STDERR_FILENO) == 1) {}

void RunDisplay::line(const std::string& text) const {
  std::cerr << (terminal_ ? "\r\033[K" : "") << text << "\n" << std::flush;
}

void RunDisplay::step(const StepReport& r) {
  mean_seconds_ =
      mean_seconds_ == 0 ? r.seconds : mean_seconds_ + kSmoothing * (r.seconds - mean_seconds_);
  const double left = mean_seconds_ * static_cast<double>(r.total_steps - r.step);
  if (!r.skipped.empty()) {
    line(fmt::format("step {} skipped: {} (loss {}, gradient norm {})", r.step, r.skipped, r.loss,
                     r.grad_norm));
  }
  if (terminal_) {
    const double part = static_cast<double>(r.step) / static_cast<double>(r.total_steps);
    std::cerr << fmt::format("\r\033[K{} {}/{}  loss {:.4f}  {} tokens/s{}  {} left", bar(part),
                             r.step, r.total_steps, r.loss, count_text(r.tokens_per_second),
                             mfu_text(r), time_text(left))
              << (r.step == r.total_steps ? "\n" : "") << std::flush;
  } else if (r.logged) {
    line(fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  norm {:.3f}  {} tokens/s{}  {} left",
                     r.step, r.total_steps, r.loss, r.learning_rate, r.grad_norm,
                     count_text(r.tokens_per_second), mfu_text(r), time_text(left)));
  }
}

void RunDisplay::eval(const EvalReport& r) {
  line(
      fmt::format("step {}  validation{}: loss {:.4f}  perplexity {:.2f}  bits/byte {:.4f}  ({} "
                  "tokens, {:.1f} s)",
                  r.step, r.source.empty() ? "" : " " + r.source, r.loss, r.perplexity,
                  r.bits_per_byte, r.tokens, r.seconds));
}

void RunDisplay::save(const SaveReport& r) {
  if (r.ok) {
    line(fmt::format("step {}  saved {} a rank in {:.2f} s, training paused {:.3f} s", r.step,
                     bytes_text(static_cast<double>(r.bytes)), r.write_seconds, r.stall_seconds));
  } else {
    line(fmt::format("step {}  SAVE FAILED: {}; training goes on, the older checkpoint is whole",
                     r.step, r.error.empty() ? "on another rank, see its log" : r.error));
  }
}

void RunDisplay::event(const std::string& kind, const std::string& text) {
  line(kind + ": " + text);
}

}  // namespace anabranch
