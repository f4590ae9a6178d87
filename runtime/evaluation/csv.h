// Tables of text as RFC 4180 has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anabranch {

// The records of a CSV file: fields in double quotes may hold commas, line feeds and doubled
// quotes. Lines end with or without a carriage return; empty ones are left out.
//
//   name  how messages call it
//
// Throws Error (data) with file and line for a quote that is out of place or never closed.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name);

}  // namespace anabranch
