#include "data/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace anabranch {
namespace {

// Whole shares of `total` nearest to the weights, by largest remainders.
std::vector<int64_t> whole_shares(const std::vector<double>& weights, int64_t total) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  for (size_t s = 0; s < weights.size(); ++s) {
    const double exact = weights[s] / sum * static_cast<double>(total);
    shares.push_back(static_cast<int64_t>(exact));
    remainders.emplace_back(-(exact - std::floor(exact)), s);
  }
  std::sort(remainders.begin(), remainders.end());
  int64_t left = total - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (size_t i = 0; left > 0; i = (i + 1) % remainders.size(), --left) {
    ++shares[remainders[i].second];
  }
  return shares;
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t key)
    : n_(n), key_(key), half_bits_((static_cast<unsigned>(std::bit_width(n - 1)) + 1) / 2) {
  AB_CHECK(n >= 1, "a permutation of nothing");
  half_bits_ = std::max(1U, half_bits_);
}

uint64_t Permutation::operator()(uint64_t i) const {
  AB_CHECK(i < n_, i, " of a permutation of ", n_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = i >> half_bits_, right = i & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t mixed = mix_keys(key_ + round, right) & mask;
      left = std::exchange(right, left ^ mixed);
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);
  return i;
}

Sampler::Sampler(std::vector<int64_t> samples, const std::vector<double>& weights, uint64_t seed)
    : samples_(std::move(samples)), seed_(seed) {
  AB_CHECK(!samples_.empty() && samples_.size() == weights.size(), samples_.size(), " sources, ",
           weights.size(), " weights");
  for (const int64_t n : samples_) AB_CHECK(n > 0, "a source without samples");
  std::vector<double> shares = weights;
  for (const double w : weights) {
    if (!(w >= 0) || std::isinf(w)) throw config_error("weight ", w, " of a source; expected >= 0");
  }
  if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0; })) {
    shares.assign(samples_.begin(), samples_.end());
  }
  share_ = whole_shares(shares, kPeriod);
  for (size_t s = 0; s < share_.size(); ++s) {
    if (share_[s] > 0 || shares[s] == 0) continue;  // a weight of 0 leaves a source out
    throw config_error("source ", s, " has a weight below 1/", kPeriod,
                       " of all; join it with another source, or give it more");
  }
  if (share_.size() == 1) return;
  std::vector<int64_t> given(share_.size());
  for (int64_t t = 0; t < kPeriod; ++t) {
    // Whoever lags most behind its share of the first t + 1 turns.
    size_t next = 0;
    int64_t most = share_[0] * (t + 1) - given[0] * kPeriod;
    for (size_t s = 1; s < share_.size(); ++s) {
      const int64_t lag = share_[s] * (t + 1) - given[s] * kPeriod;
      if (lag > most) std::tie(next, most) = std::pair(s, lag);
    }
    turn_.push_back(static_cast<uint16_t>(next));
    before_.push_back(static_cast<uint16_t>(given[next]++));
  }
}

Sampler::Place Sampler::at(int64_t sample) const {
  AB_CHECK(sample >= 0, "sample ", sample);
  size_t source = 0;
  int64_t k = sample;
  if (!turn_.empty()) {
    const auto turn = static_cast<size_t>(sample % kPeriod);
    source = turn_[turn];
    k = sample / kPeriod * share_[source] + before_[turn];
  }
  const int64_t n = samples_[source], epoch = k / n;
  const uint64_t key = mix_keys(mix_keys(seed_, source), static_cast<uint64_t>(epoch));
  const Permutation order(static_cast<uint64_t>(n), key);
  const uint64_t position = order(static_cast<uint64_t>(k % n));
  return {static_cast<int>(source), epoch, static_cast<int64_t>(position)};
}

int64_t Sampler::taken(int source, int64_t sample) const {
  if (turn_.empty()) return sample;
  const auto s = static_cast<size_t>(source);
  int64_t count = sample / kPeriod * share_.at(s);
  for (int64_t t = 0; t < sample % kPeriod; ++t) {
    count += turn_[static_cast<size_t>(t)] == s ? 1 : 0;
  }
  return count;
}

}  // namespace anabranch
