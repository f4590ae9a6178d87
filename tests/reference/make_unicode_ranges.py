"""Writes data/tokenizer/unicode_ranges.cpp: which code points are letters, numbers and spaces.

Letters and numbers are the general categories L* and N* of Python's unicodedata; spaces are the
property White_Space, which Unicode has not changed since version 6.3 and which unicodedata does
not hold. Run with a Python whose unicodedata is of the Unicode version named below (3.11):
    python tests/reference/make_unicode_ranges.py > data/tokenizer/unicode_ranges.cpp
"""

import sys
import unicodedata

VERSION = "14.0.0"
SPACES = [(0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
          (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]


def ranges(category):
    found = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] == category:
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return found


def table(name, rows):
    lines = [f"constexpr CodeRange {name}[] = {{"]
    line = "   "
    for first, last in rows:
        item = f" {{0x{first:x}, 0x{last:x}}},"
        if len(line) + len(item) > 100:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join(lines + [line.rstrip(","), "};"])


if unicodedata.unidata_version != VERSION:
    sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, the table is of {VERSION}")
print(f"""// Made by tests/reference/make_unicode_ranges.py from Unicode {VERSION}: do not edit.
#include "data/tokenizer/unicode_ranges.h"

namespace anabranch {{
namespace {{

// clang-format off
{table("kLetters", ranges("L"))}

{table("kNumbers", ranges("N"))}

{table("kSpaces", SPACES)}
// clang-format on

}}  // namespace

std::span<const CodeRange> letter_ranges() {{ return kLetters; }}

std::span<const CodeRange> number_ranges() {{ return kNumbers; }}

std::span<const CodeRange> space_ranges() {{ return kSpaces; }}

}}  // namespace anabranch""")
