#include "data/bigram.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/error.h"

namespace anabranch {
namespace {

constexpr double kDiscount = 0.75;

std::vector<int32_t> read_tokens(const TokenStream& from, int64_t most, int64_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(most, from.tokens())));
  if (tokens.size() < 2)
    throw data_error("a bigram model needs two tokens; there are ", tokens.size());
  from.read(0, std::ssize(tokens), tokens.data());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    throw data_error(from.where(static_cast<int64_t>(i)), " is ", tokens[i],
                     "; the vocabulary has ", vocab_size, " entries");
  }
  return tokens;
}

uint64_t pair_key(int32_t h, int32_t w) {
  return static_cast<uint64_t>(h) << 32U | static_cast<uint64_t>(w);
}

class BigramModel {
 public:
  BigramModel(const std::vector<int32_t>& tokens, int64_t vocab_size)
      : count_(static_cast<size_t>(vocab_size)),
        as_history_(count_.size()),
        followers_(count_.size()),
        total_(static_cast<double>(tokens.size()) + static_cast<double>(vocab_size)) {
    for (const int32_t w : tokens) ++count_[static_cast<size_t>(w)];
    for (size_t i = 1; i < tokens.size(); ++i) {
      pairs_.push_back(pair_key(tokens[i - 1], tokens[i]));
      ++as_history_[static_cast<size_t>(tokens[i - 1])];
    }
    std::sort(pairs_.begin(), pairs_.end());
    for (size_t i = 0; i < pairs_.size(); ++i) {
      if (i == 0 || pairs_[i] != pairs_[i - 1]) ++followers_[pairs_[i] >> 32U];
    }
  }

  [[nodiscard]] double probability(int32_t h, int32_t w) const {
    const auto history = static_cast<size_t>(h);
    const double alone = (static_cast<double>(count_[static_cast<size_t>(w)]) + 1) / total_;
    if (as_history_[history] == 0) return alone;
    const auto [first, last] = std::equal_range(pairs_.begin(), pairs_.end(), pair_key(h, w));
    const auto seen = static_cast<double>(as_history_[history]);
    const double kept = std::max(static_cast<double>(last - first) - kDiscount, 0.0);
    return (kept + kDiscount * static_cast<double>(followers_[history]) * alone) / seen;
  }

 private:
  std::vector<int64_t> count_, as_history_, followers_;
  double total_;
  std::vector<uint64_t> pairs_;  // sorted, with repeats
};

}  // namespace

BigramResult bigram(const TokenStream& train, const TokenStream& val, int64_t vocab_size,
                    std::span<const uint32_t> token_bytes, int64_t max_train_tokens) {
  AB_CHECK(token_bytes.empty() || std::ssize(token_bytes) == vocab_size, token_bytes.size(),
           " lengths for ", vocab_size, " tokens");
  const std::vector<int32_t> fit = read_tokens(train, max_train_tokens, vocab_size);
  const std::vector<int32_t> tokens = read_tokens(val, val.tokens(), vocab_size);
  const BigramModel model(fit, vocab_size);
  double nats = 0, nats_of_text = 0, bytes = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const double loss = -std::log(model.probability(tokens[i - 1], tokens[i]));
    nats += loss;
    if (token_bytes.empty()) continue;
    const uint32_t length = token_bytes[static_cast<size_t>(tokens[i])];
    bytes += length;
    if (length > 0) nats_of_text += loss;
  }
  BigramResult result;
  result.tokens = std::ssize(tokens) - 1;
  result.fitted_on = std::ssize(fit);
  result.nats_per_token = nats / static_cast<double>(result.tokens);
  if (bytes > 0) result.bits_per_byte = nats_of_text / std::numbers::ln2 / bytes;
  return result;
}

}  // namespace anabranch
