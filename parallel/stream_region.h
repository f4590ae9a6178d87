// Streams that lie on several ranks: the rows of all ranks travel to the streams of each, and the
// sums over streams come home.
//
//   layout   each rank has               sums that come home
//   gather   whole streams               U = sum_k g_k (K_k s + b_k), before the nonlinearity
//   slice    a slice of every stream     Y = W_down phi(U), whose slice of U is complete
//
// Rows are sent in chunks, so that those of one chunk travel while another is computed with. In
// backward the tape runs the same in reverse.
#pragma once

#include <functional>
#include <vector>

#include "core/ops/stream_linear.h"
#include "parallel/collectives.h"
#include "parallel/regions.h"

namespace anabranch {

// y = this rank's rows of  sum over ranks of body(rows of all ranks), in chunks of rows.
//
//   xs     [n, ...] each   as many rows on every rank
//   chunk  rows of each rank that travel together; the same on every rank
//   type   of y            what the sums are rounded to
//   body                   from [size * m, ...] each to partial sums [size * m, ...] in the
//                          accumulator's type. It makes the gradients of its inputs in that type
//                          too, and takes that of its output in whatever type that of y has
//
// Called by all ranks of the group in one order.
Var through(Group& group, const std::vector<Var>& xs, int64_t chunk, DType type,
            const std::function<Var(const std::vector<Var>&)>& body);

// The same in one chunk, with body from [n, ...] each to [n, ...] called for the rows of each rank
// of the model group by themselves, as Regions::for_sources() says.
Var through_apart(const Regions& regions, const std::vector<Var>& xs, DType type,
                  const std::function<Var(const std::vector<Var>&)>& body);

// Into how many chunks the rows of a region go that every rank enters with `rows`, and how many
// rows a chunk has.
[[nodiscard]] int64_t chunk_count(int64_t rows);
[[nodiscard]] int64_t chunk_rows(int64_t rows);

class StreamRegion {
 public:
  StreamRegion() = default;  // all streams are here

  explicit StreamRegion(const Regions& regions);

  [[nodiscard]] bool alone() const { return group_ == nullptr; }

  [[nodiscard]] bool slices() const { return !alone() && regions_.streams == StreamLayout::kSlice; }

  // The type of this rank's part of a sum over streams.
  [[nodiscard]] SumType part_sums() const { return alone() ? SumType::kRounded : SumType::kWide; }

  // The order in which this rank's streams are added.
  [[nodiscard]] StreamOrder order() const {
    return regions_.any_layout ? StreamOrder::kTree : StreamOrder::kRising;
  }

  // Leaves this rank its part of an axis of `w`.
  void split(Param& w, int axis) const;

  // The sums that come home, of `body` on this rank's streams or slices; alone, body(s, g).
  //
  //   s     [n, C]      activations
  //   g     [n, N]      gates; body gets those of its streams
  //   type              of the result
  Var sum(const Var& s, const Var& g, DType type,
          const std::function<Var(const Var& s, const Var& g)>& body) const;

  // For figures, whose ranks must agree when they want them. Each is collective.

  // x [n, ...] of all ranks, in rank order.
  [[nodiscard]] Tensor rows_of_all(const Tensor& x) const;
  // Sends home what this rank's kernels [n, f, C] make of the rows of each rank: made [size, n, f,
  // rows]. What is made of this rank's, in pieces that together are [N, F, rows].
  //
  //   whole   [N, F, C]  the shape of all kernels
  [[nodiscard]] std::vector<Tensor> come_home(const Tensor& made, const Shape& whole) const;
  // Kernels [n, F, C] of whole streams as a slice [N, f, C] of all; slices as they are.
  [[nodiscard]] Tensor slices_of(const Tensor& kernels, const Shape& whole) const;
  // x <- sum over ranks.
  void add_up(Tensor& x) const;

 private:
  // This rank's, and those of each rank, of `parts`.
  [[nodiscard]] int64_t mine(int64_t parts) const;
  [[nodiscard]] std::vector<int64_t> shares(int64_t parts, int64_t times) const;

  Regions regions_;
  Group* group_ = nullptr;  // null: alone
};

}  // namespace anabranch
