#include "core/base/sha256.h"

#include <string>

#include <gtest/gtest.h>

namespace anabranch {
namespace {

// The example vectors of FIPS 180-4 (NIST, "SHA256.pdf") and two of its long-message vectors.
TEST(Sha256, GivesTheNistVectors) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Every length around a block's end, in pieces and at once.
TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  for (std::size_t n = 0; n < 200; ++n) {
    const std::string text(n, 'x');
    Sha256 hash;
    for (std::size_t i = 0; i < n; i += 7) hash.update(std::string_view(text).substr(i, 7));
    EXPECT_EQ(hash.finish(), sha256(text)) << n;
  }
}

}  // namespace
}  // namespace anabranch
