// Pieces of a file in memory, for parser*.cpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "data/hdf5/parser.h"

namespace anabranch::hdf5 {

// A piece of the file in memory, read from front to back.
class Parser::Bytes {
 public:
  Bytes(const Parser& parser, std::string bytes) : parser_(&parser), bytes_(std::move(bytes)) {}

  [[nodiscard]] uint64_t left() const { return bytes_.size() - at_; }

  std::string_view text(uint64_t size) {
    if (size > left()) throw parser_->broken("a structure is shorter than it says");
    const std::string_view part = std::string_view(bytes_).substr(at_, size);
    at_ += size;
    return part;
  }

  void skip(uint64_t size) { (void)text(size); }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, text(sizeof(T)).data(), sizeof(T));
    return value;
  }

  unsigned byte() { return number<uint8_t>(); }

  void expect(std::string_view signature) {
    if (text(signature.size()) != signature) {
      throw parser_->broken(join("no ", signature, " where there should be one"));
    }
  }

  // The next `size` bytes as a piece of their own; with `padded`, up to a multiple of 8 is skipped.
  Bytes piece(uint64_t size, bool padded = false) {
    Bytes part(*parser_, std::string(text(size)));
    if (padded) skip(std::min<uint64_t>(left(), (8 - size % 8) % 8));
    return part;
  }

 private:
  const Parser* parser_;
  std::string bytes_;
  uint64_t at_ = 0;
};

// A datatype message: an element we store, or what an attribute may be.
struct Parser::Type {
  enum { kInteger, kReal, kText, kHeapText, kElse } kind = kElse;

  uint64_t size = 0;
  bool is_signed = false;
  Hdf5Type element = Hdf5Type::kOther;
};

}  // namespace anabranch::hdf5
