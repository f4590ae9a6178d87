#include "monitoring/json_lines.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"

namespace anabranch {

namespace {

// Lines that may wait while a disk hangs; beyond it they are lost, not memory.
constexpr size_t kMaxQueued = 10000;

void append_quoted(std::string& text, std::string_view word) {
  constexpr const char* kHex = "0123456789abcdef";
  text += '"';
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20) {
      text += "\\u00";
      text += kHex[byte >> 4U];
      text += kHex[byte & 15U];
    } else {
      text += c;
    }
  }
  text += '"';
}

void append_number(std::string& text, double value) {
  if (!std::isfinite(value)) {
    text += "null";
    return;
  }
  std::array<char, 64> buffer{};
  // Counts as whole numbers, not as 1e+06.
  const bool whole = std::trunc(value) == value && std::fabs(value) < 1e15;
  const auto end = whole ? std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                         static_cast<int64_t>(value))
                         : std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  text.append(buffer.data(), end.ptr);
}

void append_numbers(std::string& text, const std::vector<double>& values) {
  text += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ',';
    append_number(text, values[i]);
  }
  text += ']';
}

// Where the last whole line ends.
off_t whole_lines(int file, off_t size) {
  std::array<char, 4096> block{};
  while (size > 0) {
    const off_t begin = size > off_t{4096} ? size - off_t{4096} : 0;
    const ssize_t got = pread(file, block.data(), static_cast<size_t>(size - begin), begin);
    if (got <= 0) return size;
    for (ssize_t i = got; i > 0; --i) {
      if (block[static_cast<size_t>(i - 1)] == '\n') return begin + i;
    }
    size = begin;
  }
  return 0;
}

}  // namespace

JsonLine::JsonLine(std::string_view type) : text_("{\"type\":") { append_quoted(text_, type); }

JsonLine& JsonLine::add(Metric metric, double value, std::string_view label) {
  std::string key = spec_of(metric).name;
  if (!label.empty()) key.append("_").append(label);
  return add(key, value);
}

JsonLine& JsonLine::add(std::string_view key, std::string_view text) {
  add_word(key, "");
  append_quoted(text_, text);
  return *this;
}

JsonLine& JsonLine::add(std::string_view key, double value) {
  add_word(key, "");
  append_number(text_, value);
  return *this;
}

JsonLine& JsonLine::add(std::string_view key, const std::vector<double>& values) {
  add_word(key, "");
  append_numbers(text_, values);
  return *this;
}

JsonLine& JsonLine::add(std::string_view key, const std::vector<std::vector<double>>& rows) {
  add_word(key, "[");
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) text_ += ',';
    append_numbers(text_, rows[i]);
  }
  text_ += ']';
  return *this;
}

JsonLine& JsonLine::add_word(std::string_view key, std::string_view word) {
  text_ += ',';
  append_quoted(text_, key);
  text_ += ':';
  text_ += word;
  return *this;
}

JsonLines::JsonLines(const std::string& path, std::function<void(const std::string&)> warn)
    : path_(path), warn_(std::move(warn)) {
  file_ = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) {
    warn_(join("cannot write ", path, ": ", std::strerror(errno), "; its lines are lost"));
    warned_ = true;
  } else {
    const off_t size = lseek(file_, 0, SEEK_END);
    const off_t whole = whole_lines(file_, size);
    if (whole < size && ftruncate(file_, whole) == 0) {
      warn_(join(path, ": cut off a torn last line of ", size - whole, " bytes"));
    }
  }
  thread_ = std::thread([this] { run(); });
}

JsonLines::~JsonLines() {
  {
    const std::lock_guard hold(lock_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (file_ >= 0) {
    fsync(file_);
    close(file_);
  }
}

void JsonLines::write(const JsonLine& line) {
  const std::lock_guard hold(lock_);
  if (queue_.size() >= kMaxQueued) {
    ++lost_;
    return;
  }
  queue_.push_back(line.text() + "\n");
  wake_.notify_one();
}

void JsonLines::flush() {
  std::unique_lock hold(lock_);
  idle_.wait(hold, [this] { return queue_.empty() && !busy_; });
  hold.unlock();
  if (file_ >= 0) fsync(file_);
}

int64_t JsonLines::lost() const {
  const std::lock_guard hold(lock_);
  return lost_;
}

void JsonLines::run() {
  std::unique_lock hold(lock_);
  while (true) {
    wake_.wait(hold, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::string line = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    hold.unlock();
    const bool written = append(line);
    const int failure = errno;
    hold.lock();
    busy_ = false;
    if (!written) {
      ++lost_;
      if (!warned_) {
        warned_ = true;
        hold.unlock();
        warn_(join("cannot write ", path_, ": ", std::strerror(failure), "; a line is lost"));
        hold.lock();
      }
    }
    if (queue_.empty()) idle_.notify_all();
  }
}

bool JsonLines::append(const std::string& line) {
  if (file_ < 0) return false;
  const off_t before = lseek(file_, 0, SEEK_END);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t wrote = ::write(file_, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int failure = errno;
      // A full disk may have taken half the line.
      if (done > 0 && ftruncate(file_, before) != 0) done = 0;
      errno = failure;
      return false;
    }
    done += static_cast<size_t>(wrote);
  }
  return true;
}

}  // namespace anabranch
