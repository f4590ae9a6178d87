// Which sample comes when: a function of the seed and the sample's number, without any state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace anabranch {

// A permutation of 0 .. n-1 that needs no table: six Feistel rounds over the next even power of
// two, walked along its cycles until the result is below n.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key);

  // The image of `i` < n.
  [[nodiscard]] uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_, key_;
  unsigned half_bits_;
};

// Global sample number -> place in one of the sources.
//
// The sources take turns by their weights: of every 16,384 consecutive samples, counted from a
// multiple of it, each source gives its share (to the nearest whole sample), evenly spread. The
// k-th sample taken from a source of n samples is in its epoch k / n, each of which visits every
// sample once, in an order of its own.
class Sampler {
 public:
  struct Place {
    int source;
    int64_t epoch, position;  // position: which sample of the source
  };

  //   samples  of each source
  //   weights  their shares, in any unit; all 0: by `samples`
  //   seed     of the order
  //
  // Throws config_error if a share is too small or not a number.
  Sampler(std::vector<int64_t> samples, const std::vector<double>& weights, uint64_t seed);

  [[nodiscard]] Place at(int64_t sample) const;

  // The samples of a source in a period; 0: it is left out.
  [[nodiscard]] int64_t share(int source) const { return share_.at(static_cast<size_t>(source)); }

  // How many samples of a source there are before global sample `sample`.
  [[nodiscard]] int64_t taken(int source, int64_t sample) const;

 private:
  static constexpr int64_t kPeriod = 16384;

  std::vector<int64_t> samples_;
  uint64_t seed_;
  std::vector<int64_t> share_;    // samples of each source in a period
  std::vector<uint16_t> turn_;    // [kPeriod] whose sample it is; empty for one source
  std::vector<uint16_t> before_;  // [kPeriod] samples of that source before it in the period
};

}  // namespace anabranch
