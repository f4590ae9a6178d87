#include "runtime/config/nearest.h"

#include <algorithm>
#include <cstddef>

namespace anabranch {

int edit_distance(std::string_view a, std::string_view b) {
  // A hostile key may be as long as the file; nothing that long is a typing error.
  constexpr size_t kLongest = 128;
  if (a.size() > kLongest || b.size() > kLongest) return a == b ? 0 : static_cast<int>(kLongest);
  std::vector<int> before(b.size() + 1);
  std::vector<int> last(b.size() + 1);
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  const int length = static_cast<int>(word.size());
  int best_distance = (length <= 3 ? 1 : std::max(2, length / 3)) + 1;
  for (const std::string& candidate : candidates) {
    int distance = edit_distance(word, candidate);
    // A start or an end of the right word ("warmup" for "warmup_steps") is as good as one error.
    if (word.size() >= 3 && candidate.size() > word.size() &&
        (candidate.starts_with(word) || candidate.ends_with(word))) {
      distance = std::min(distance, 1);
    }
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string nearest_or_known(std::string_view word, const std::vector<std::string>& known,
                             const std::string& prefix, const std::string& known_here) {
  const std::string nearest = nearest_word(word, known);
  if (!nearest.empty()) return "; nearest is " + prefix + nearest;
  return known_here.empty() ? "" : "; " + known_here + word_list(known);
}

std::string word_list(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

}  // namespace anabranch
