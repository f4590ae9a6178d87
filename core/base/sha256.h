// SHA-256, for naming a file's contents.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace anabranch {

// A running SHA-256.
//
// Source: FIPS 180-4, section 6.2.
class Sha256 {
 public:
  // Takes in more bytes; any number of calls.
  void update(std::string_view bytes);

  // The digest of everything taken in, as 64 lower-case hexadecimal digits. Call it once, last.
  std::string finish();

 private:
  void compress(const unsigned char* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667U, 0xbb67ae85U, 0x3c6ef372U, 0xa54ff53aU,
                                      0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U};
  std::array<unsigned char, 64> block_{};
  std::size_t held_ = 0;
  std::uint64_t length_ = 0;
};

// The digest of `bytes`, as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace anabranch
