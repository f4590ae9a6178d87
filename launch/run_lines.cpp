#include "launch/run_lines.h"

#include <fmt/format.h>

#include "core/base/quote.h"
#include "launch/progress.h"

namespace anabranch {

std::string mfu_text(const StepReport& r) {
  return r.mfu < 0 ? "" : fmt::format("  mfu {:.1f}%", 100 * r.mfu);
}

std::string step_line(const StepReport& r, double left) {
  const bool planned = r.total_steps > 0;
  return fmt::format("step {}{}  loss {:.4f}  lr {:.3g}  norm {:.3f}  {} tokens/s{}{}", r.step,
                     planned ? fmt::format("/{}", r.total_steps) : "", r.loss, r.learning_rate,
                     r.grad_norm, count_text(r.tokens_per_second), mfu_text(r),
                     planned && left >= 0 ? "  " + time_text(left) + " left" : "");
}

std::string skipped_line(const StepReport& r) {
  return fmt::format("step {} skipped: {} (loss {}, gradient norm {})", r.step, r.skipped, r.loss,
                     r.grad_norm);
}

std::string eval_line(const EvalReport& r) {
  const std::string source = r.source.empty() ? "" : " " + r.source;
  if (r.looks_ahead) {
    return fmt::format(
        "step {}  validation{} looking ahead: loss {:.4f}  (sees the future: no headline figure; "
        "{} tokens, {:.1f} s)",
        r.step, source, r.loss, r.tokens, r.seconds);
  }
  return fmt::format(
      "step {}  validation{}: loss {:.4f}  perplexity {:.2f}  bits/byte {:.4f}  ({} tokens, {:.1f} "
      "s)",
      r.step, source, r.loss, r.perplexity, r.bits_per_byte, r.tokens, r.seconds);
}

std::string save_line(const SaveReport& r) {
  if (!r.ok) {
    return fmt::format(
        "step {}  SAVE FAILED: {}; training goes on; older checkpoints are untouched", r.step,
        r.error.empty() ? "on another rank, see its log" : r.error);
  }
  return fmt::format("step {}  saved {} a rank in {:.2f} s, training paused {:.3f} s", r.step,
                     bytes_text(static_cast<double>(r.bytes)), r.write_seconds, r.stall_seconds);
}

std::string event_line(const std::string& kind, const std::string& text) {
  constexpr size_t kLongest = 4096;  // a line that another program may have written
  return excerpt(kind, kLongest) + ": " + excerpt(text, kLongest);
}

void StepSeconds::add(double seconds) {
  constexpr double kNewest = 0.1;
  mean_ = mean_ == 0 ? seconds : mean_ + kNewest * (seconds - mean_);
}

double StepSeconds::of(int64_t steps) const {
  return mean_ > 0 ? mean_ * static_cast<double>(steps) : -1;
}

}  // namespace anabranch
