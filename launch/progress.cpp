#include "launch/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace anabranch {

namespace {

std::string scaled(double value, double base, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (std::fabs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f%s" : "%.1f%s", value, units[unit]);
  return text.data();
}

}  // namespace

std::string bytes_text(double bytes) {
  return scaled(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string count_text(double count) { return scaled(count, 1000, {"", " k", " M", " G", " T"}); }

std::string count_text(double count, const std::string& noun) {
  return count_text(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string time_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e8) return "-";
  const auto whole = static_cast<long>(std::lround(seconds));
  std::array<char, 64> text{};
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%ld:%02ld", whole / 60, whole % 60);
  }
  return text.data();
}

Progress::Progress(std::string title, double total, Unit unit)
    : title_(std::move(title)),
      total_(total),
      unit_(unit),
      terminal_(isatty(STDERR_FILENO) == 1),
      begin_(Clock::now()),
      next_(begin_ + std::chrono::seconds(terminal_ ? 0 : 2)) {}

Progress::~Progress() {
  if (terminal_ && shown_ > 0) std::fputc('\n', stderr);
}

void Progress::update(double done, const std::string& note) {
  done_ = done;
  note_ = note;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000));
  show(line(done, note, std::chrono::duration<double>(now - begin_).count()));
}

void Progress::restart(std::string title, double total, Unit unit) {
  finish();
  title_ = std::move(title);
  total_ = total;
  unit_ = unit;
  done_ = 0;
  note_.clear();
  begin_ = Clock::now();
  next_ = begin_ + std::chrono::seconds(terminal_ ? 0 : 2);
}

void Progress::finish() {
  show(line(done_, note_, std::chrono::duration<double>(Clock::now() - begin_).count()));
  if (terminal_) std::fputc('\n', stderr);
  shown_ = 0;
}

std::string Progress::line(double done, const std::string& note, double seconds) const {
  const auto amount = [&](double value) {
    return unit_ == Unit::kBytes ? bytes_text(value) : count_text(value);
  };
  const double rate = seconds > 0 ? done / seconds : 0;
  std::string text = title_;
  if (total_ > 0) {
    constexpr int kWidth = 24;
    const double share = std::clamp(done / total_, 0.0, 1.0);
    const int filled = static_cast<int>(share * kWidth);
    std::array<char, 16> percent{};
    std::snprintf(percent.data(), percent.size(), " %3.0f%%", share * 100);
    if (terminal_) {
      text += " [" + std::string(static_cast<size_t>(filled), '#') +
              std::string(static_cast<size_t>(kWidth - filled), '.') + "]";
    }
    text += percent.data();
  }
  text += "  " + amount(done) + (total_ > 0 ? " of " + amount(total_) : "");
  text += "  " + amount(rate) + "/s  " + time_text(seconds);
  if (total_ > 0 && done < total_ && rate > 0) {
    text += ", " + time_text((total_ - done) / rate) + " left";
  }
  return note.empty() ? text : text + "  " + note;
}

void Progress::show(const std::string& text) {
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  // Blanks cover what a longer line left.
  const std::string cover(shown_ > text.size() ? shown_ - text.size() : 0, ' ');
  std::fprintf(stderr, "\r%s%s", text.c_str(), cover.c_str());
  std::fflush(stderr);
  shown_ = text.size();
}

}  // namespace anabranch
