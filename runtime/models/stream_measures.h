// What a run tells of its streams: how evenly they carry, how sharply gates choose, whether they
// are alike. Of each unit (a layer, or a span of layers) from sums over the tokens of a step.
#pragma once

#include <vector>

#include "core/autograd/param.h"
#include "parallel/stream_region.h"
#include "runtime/models/measures.h"

namespace anabranch {

// Figures are of all streams, whichever rank has them: what compares streams or kernels is
// collective over the region.
//
// The places of the sums: one for the auxiliary losses, then for each unit N sums of gates, N
// counts of largest gates, the sum of entropies, the rows, and the sum and count of branch
// similarities.
class StreamMeasures {
 public:
  StreamMeasures(int64_t units, int64_t streams, const StreamRegion& region = {})
      : units_(units), streams_(streams), region_(region) {}

  [[nodiscard]] size_t places() const { return at(units_, 0); }

  // Adds a unit's gates [rows, N].
  void add_gates(Measures& to, int64_t unit, const Tensor& gates) const;

  // Adds the mean pairwise cosine of the streams' products K_k s on some rows of s.
  void add_branches(Measures& to, int64_t unit, const Tensor& s, const Param& kernels) const;

  // Counts the steps since each stream last carried a tenth of its share: quiet [N].
  void count_quiet(const Measures& sums, int64_t unit, Tensor& quiet) const;

  // Of gates alone; `quiet` as above, or empty.
  void read_gates(std::vector<Reading>& to, const Measures& sums, int64_t unit,
                  const Tensor& quiet) const;

  // Of kernels [N, F, C] and their gradient.
  void read_kernels(std::vector<Reading>& to, int64_t unit, const Param& kernels) const;

  // Steps that make a quiet stream a dead one.
  static constexpr double kDeadAfter = 1000;

 private:
  [[nodiscard]] size_t at(int64_t unit, int64_t place) const {
    return static_cast<size_t>(1 + unit * (2 * streams_ + 4) + place);
  }

  int64_t units_, streams_;
  StreamRegion region_;
};

}  // namespace anabranch
