// The word a user probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anabranch {

// The fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The candidate that is nearest to `word`, or an empty string if none is near enough to be a typing
// error. Ties go to the first candidate.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// The words as "a, b, c".
std::string word_list(const std::vector<std::string>& words);

}  // namespace anabranch
