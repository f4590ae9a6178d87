// GPT-2's spelling of bytes as printable characters, used by every byte-level tokenizer file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace anabranch {

// The bytes in the order of the characters that stand for them: first those that are printable in
// Latin-1 and stand for themselves, then the others, which U+0100 and up stand for.
// Files by GPT-2 and by Hugging Face number the single-byte tokens in this order.
const std::array<std::uint8_t, 256>& alphabet_order();

// Spells bytes as UTF-8 text of one character a byte.
std::string spell_bytes(std::string_view bytes);

// The bytes that `spelling` stands for; nothing if it holds a character outside the alphabet.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace anabranch
