#include "data/text/byte_stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "core/base/error.h"

namespace anabranch {
namespace {

constexpr size_t kInput = size_t{1} << 18U, kLineBuffer = size_t{1} << 20U;

}  // namespace

// Turns the file's bytes into text; gives 0 only at a proper end.
struct ByteStream::Codec {
  explicit Codec(ByteStream& from) : from_(from), input_(kInput) {}

  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual size_t read(char* to, size_t most) = 0;

 protected:
  // More bytes of the file in input_; false at its end.
  bool refill() {
    held_ = from_.read_raw(input_.data(), input_.size());
    return held_ > 0;
  }

  Error broken(const std::string& why) const {
    return data_error(from_.path(), " near byte ", from_.consumed(), ": ", why);
  }

  ByteStream& from_;
  std::vector<char> input_;
  size_t held_ = 0;
};

struct ByteStream::Gzip : Codec {
  explicit Gzip(ByteStream& from) : Codec(from) {
    constexpr int kGzipOnly = 16;
    AB_CHECK(inflateInit2(&state_, MAX_WBITS + kGzipOnly) == Z_OK, "zlib does not start");
  }

  ~Gzip() override { inflateEnd(&state_); }

  size_t read(char* to, size_t most) override {
    most = std::min<size_t>(most, size_t{1} << 30U);
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(most);
    while (state_.avail_out == most) {
      if (state_.avail_in == 0) {
        if (!refill()) {
          if (!between_) throw broken("the gzip data ends early: the file is truncated");
          return 0;
        }
        state_.next_in = reinterpret_cast<Bytef*>(input_.data());
        state_.avail_in = static_cast<uInt>(held_);
      }
      if (between_) inflateReset(&state_);
      between_ = false;
      const int status = inflate(&state_, Z_NO_FLUSH);
      if (status == Z_STREAM_END) {
        between_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        throw broken(join("not gzip data, or damaged: ",
                          state_.msg == nullptr ? "unexpected data" : state_.msg));
      }
    }
    return most - state_.avail_out;
  }

 private:
  z_stream state_{};
  bool between_ = false;  // after a whole member; an empty file is no gzip file
};

struct ByteStream::Zstd : Codec {
  explicit Zstd(ByteStream& from) : Codec(from), state_(ZSTD_createDStream()) {
    AB_CHECK(state_ != nullptr, "zstd does not start");
  }

  ~Zstd() override { ZSTD_freeDStream(state_); }

  size_t read(char* to, size_t most) override {
    ZSTD_outBuffer out{to, most, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size && !full_) {
        if (!refill()) {
          if (!between_) throw broken("the zstd data ends early: the file is truncated");
          return 0;
        }
        in_ = {input_.data(), held_, 0};
      }
      const size_t status = ZSTD_decompressStream(state_, &out, &in_);
      if (ZSTD_isError(status) != 0) {
        throw broken(join("not zstd data, or damaged: ", ZSTD_getErrorName(status)));
      }
      between_ = status == 0;
      full_ = out.pos == out.size;  // then the decoder may hold more
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* state_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool between_ = false, full_ = false;
};

ByteStream::ByteStream(const std::string& path) : file_(path) {
  if (path.ends_with(".gz")) codec_ = std::make_unique<Gzip>(*this);
  if (path.ends_with(".zst")) codec_ = std::make_unique<Zstd>(*this);
}

ByteStream::~ByteStream() = default;

size_t ByteStream::read(char* to, size_t most) {
  return codec_ == nullptr ? read_raw(to, most) : codec_->read(to, most);
}

size_t ByteStream::read_raw(char* to, size_t most) {
  const auto part = std::min(static_cast<int64_t>(most), file_.size() - cursor_);
  file_.read(cursor_, to, static_cast<size_t>(part));
  cursor_ += part;
  return static_cast<size_t>(part);
}

LineReader::LineReader(const std::string& path, int64_t longest)
    : stream_(path), longest_(longest), buffer_(kLineBuffer, '\0') {}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  for (;;) {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = stream_.read(buffer_.data(), buffer_.size());
      if (end_ == 0) break;
    }
    if (!any) ++number_;
    any = true;
    const char* from = buffer_.data() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    const size_t part = newline == nullptr ? end_ - begin_ : static_cast<size_t>(newline - from);
    if (static_cast<int64_t>(line.size() + part) > longest_) {
      throw data_error(stream_.path(), ":", number_, ": the line is longer than ", longest_,
                       " bytes; is this the right format, or raise the limit");
    }
    line.append(from, part);
    begin_ += part;
    if (newline != nullptr) {
      ++begin_;
      return true;
    }
  }
  return any;
}

}  // namespace anabranch
