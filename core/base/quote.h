// What messages show of text that others wrote: a hostile file's line may be a megabyte.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace anabranch {

inline constexpr size_t kQuotedBytes = 80;   // of a value
inline constexpr size_t kReasonBytes = 200;  // of another library's message, which quotes

// The first `bytes` of the text (but no character in two), with "..." if that is not all, and with
// control characters, which would disturb a terminal, as \xNN.
std::string excerpt(std::string_view text, size_t bytes);

// An excerpt of 80 bytes in double quotes; the "..." stands behind them.
std::string quote(std::string_view text);

}  // namespace anabranch
