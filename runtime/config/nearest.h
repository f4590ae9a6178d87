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

// What to say after "unknown": "; nearest is PREFIXword", or which are known if none is near:
// "; known here: a, b, c". `known_here` may be empty: then only a near one is named.
std::string nearest_or_known(std::string_view word, const std::vector<std::string>& known,
                             const std::string& prefix = "",
                             const std::string& known_here = "known here: ");

// The words as "a, b, c".
std::string word_list(const std::vector<std::string>& words);

}  // namespace anabranch
