#include "launch/run_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "launch/progress.h"
#include "monitoring/metrics.h"

namespace anabranch {

namespace {

constexpr size_t kSaid = 5;

// What a figure says, or nothing where there is none.
std::string known(double value, const std::string& text) { return std::isnan(value) ? "" : text; }

std::string time_line(const std::string& name, double seconds, double step, size_t width) {
  if (std::isnan(seconds) || step <= 0) return "";
  return fmt::format("  {:<14}{} {:>5.1f}%  {:.3f} s\n", name, part_bar(seconds / step, width),
                     100 * seconds / step, seconds);
}

std::string gpu_lines(const std::vector<Spread>& gpu, size_t width) {
  const auto of = [&](Metric metric) {
    return gpu[static_cast<size_t>(metric) - static_cast<size_t>(kGpuMetrics[0].id)];
  };
  const double busy = of(Metric::kGpuUtilisation).median;
  std::string text;
  if (!std::isnan(busy)) {
    text += fmt::format("  {:<14}{} {:>5.1f}%  median of ranks\n", "GPU", part_bar(busy, width),
                        100 * busy);
  }
  const double used = of(Metric::kGpuMemoryUsed).max, power = of(Metric::kGpuPower).median;
  const double heat = of(Metric::kGpuTemperature).max;
  text += "  " + known(used, fmt::format("GPU memory {}, the most  ", bytes_text(used))) +
          known(power, fmt::format("{:.0f} W, median  ", power)) +
          known(heat, fmt::format("{:.0f} C, the hottest", heat));
  return text + "\n";
}

}  // namespace

std::string sparkline(const std::vector<double>& values, size_t width) {
  static constexpr std::array kBlocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
  const size_t columns = std::min(width, values.size());
  std::vector<double> means;
  for (size_t c = 0; c < columns; ++c) {
    const size_t first = c * values.size() / columns, end = (c + 1) * values.size() / columns;
    double sum = 0;
    for (size_t i = first; i < end; ++i) sum += values[i];
    means.push_back(sum / static_cast<double>(end - first));
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  std::string text;
  for (const double mean : means) {
    if (!std::isfinite(mean)) {
      text += "!";
      continue;
    }
    const double part = high > low ? (mean - low) / (high - low) : 0;
    text += kBlocks[static_cast<size_t>(std::lround(part * double{kBlocks.size() - 1}))];
  }
  return text;
}

std::string part_bar(double part, size_t width) {
  if (std::isnan(part)) return "-";
  const auto full = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(width));
  return fmt::format("[{:<{}}]", std::string(full, '='), width);
}

void RunView::say(const std::string& line) {
  said_.push_back(line);
  if (said_.size() > kSaid) said_.pop_front();
}

void RunView::step(const StepReport& r) {
  // What is done again after a loss of ranks shows as it is done: the curve has no steps.
  if (!r.skipped.empty()) say(skipped_line(r));
  losses_.push_back(r.loss);
  seconds_.add(r.seconds);
  last_ = r;
}

void RunView::eval(const EvalReport& r) {
  evals_[r.source + (r.looks_ahead ? " ahead" : "")] = eval_line(r);
}

void RunView::save(const SaveReport& r) { say(save_line(r)); }

void RunView::event(const std::string& kind, const std::string& text) {
  say(event_line(kind, text));
}

std::string RunView::utilisation(size_t width) const {
  constexpr size_t kAround = 40, kMostBar = 40;  // what stands beside a bar
  const size_t bar = std::clamp<size_t>(width > kAround ? width - kAround : 0, 5, kMostBar);
  const double step = last_.seconds;
  std::string text = fmt::format("\nUtilisation: {:.3f} s a step, of the median rank\n", step);
  text += time_line("compute", last_.compute_seconds.median, step, bar);
  text += time_line("communication", last_.comm_seconds.median, step, bar);
  text += time_line("data wait", last_.data_seconds.median, step, bar);
  text += "  " + known(last_.resident_bytes.max, fmt::format("memory {}, the largest rank  ",
                                                             bytes_text(last_.resident_bytes.max)));
  text += fmt::format("slowest rank {:.2f} x median\n", last_.slowest_ratio);
  return last_.gpu.empty() ? text : text + gpu_lines(last_.gpu, bar);
}

std::string RunView::text(const std::string& title, size_t width) const {
  std::string text = title + "\n";
  if (losses_.empty()) {
    text += "no step yet\n";
  } else {
    const StepReport& r = last_;
    const bool planned = r.total_steps > 0;
    const double part = static_cast<double>(r.step) / static_cast<double>(r.total_steps);
    constexpr size_t kBar = 24;
    text += fmt::format(
        "\nRun: step {}{}  {}{} left\n", r.step, planned ? fmt::format("/{}", r.total_steps) : "",
        planned ? part_bar(part, kBar) + "  " : "",
        planned ? time_text(seconds_.of(std::max<int64_t>(0, r.total_steps - r.step))) : "-");
    text += fmt::format("  {} tokens/s{}  {}FLOP/s  {} tokens\n", count_text(r.tokens_per_second),
                        mfu_text(r), count_text(r.flops_per_second),
                        count_text(static_cast<double>(r.tokens)));
    text += fmt::format("  loss {:.4f}  lr {:.3g}  norm {:.3f}\n", r.loss, r.learning_rate,
                        r.grad_norm);
    text += "  " + sparkline(losses_, width > 4 ? width - 4 : 1) + "\n";
    text += fmt::format("  loss from {:.4f} at the left\n", losses_.front());
    for (const auto& [source, line] : evals_) text += "  " + line + "\n";
    text += utilisation(width);
  }
  if (!said_.empty()) text += "\nLast\n";
  for (const std::string& line : said_) text += "  " + line + "\n";
  return text;
}

}  // namespace anabranch
