// The memory of a model's parameters: a few flat buckets, of which every Param holds views.
//
// A bucket holds parameters that are reduced over the same ranks, computed with in the same type
// and owned by the same kind of optimizer, in reverse forward order: so their gradients finish one
// after the other in backward, and a reduction, an optimizer step or a save is a few long runs over
// memory.
//
// Values and gradients are whole on every rank. With ZeRO-1 a rank keeps the master weights and the
// moments of its slice of a bucket only: it reduces, updates and saves that, and the values are
// gathered afterwards (grad_reducer.h). Where master and value are of one type, the master is the
// slice of the value.
//
//   adamw buckets   parameters one after the other; slices are equal
//   matrix buckets  slices are whole parameters, dealt to the ranks by what their updates cost; a
//                   rank may have none
//
// Padding is zero in every buffer and stays so.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/autograd/param.h"
#include "core/tensor/pool.h"
#include "core/tensor/tensor.h"

namespace anabranch {

// Elements [begin, begin + count) of a bucket or a parameter.
struct Slice {
  int64_t begin = 0, count = 0;
};

struct Bucket {
  ReduceGroup reduce;
  DType compute;
  Owner owner;
  int ranks;                    // of its reduce group
  int64_t count;                // elements, padding included; a multiple of kAlign
  std::vector<int64_t> begins;  // [ranks + 1] of the ranks' slices; empty: each owns all
  Slice own;                    // those of which master and moments are here

  Tensor value;   // [count] of `compute`
  Tensor lanes;   // [lanes, count] sums of gradients that are kept apart; of the master's type
  Tensor grad;    // [count] the first of them
  Tensor master;  // [own.count] float32; float64 in float64 runs; of `value` if that is its type
  Tensor m, v;    // [own.count] moments, of the master's type; a matrix bucket has no v

  // Whether its group's ranks own a slice each.
  [[nodiscard]] bool sharded() const { return !begins.empty(); }

  // What a rank of its group owns: whole lines of 64 bytes; whole parameters in a matrix bucket.
  [[nodiscard]] Slice slice(int rank) const;
};

class FlatStore {
 public:
  static constexpr int64_t kAlign = 32;  // elements: 64 bytes of bf16

  struct Options {
    int64_t bucket_bytes = int64_t{25} << 20;  // of gradient, at least, but for the last ones
    int all_ranks = 1;                         // in the group that ReduceGroup::kAll means
    int data_ranks = 1;                        // in the group that ReduceGroup::kData means
    int all_rank = 0, data_rank = 0;           // this rank in them
    bool zero = false;                         // ZeRO-1
    int lanes = 1;                             // of gradients: lanes.h
  };

  // Where a parameter is: elements [offset, offset + param->shape.count()) of a bucket.
  struct Entry {
    Param* param;
    int bucket;
    int64_t offset;
    Slice own;  // of the parameter's elements, those of which master and moments are here
  };

  // Lays out `params`, given in forward order and each once, and binds their value, master and grad
  // to zeroed views. Keeps pointers to them.
  FlatStore(const std::vector<Param*>& params, const Options& options,
            const std::shared_ptr<Pool>& pool);
  FlatStore(const FlatStore&) = delete;
  FlatStore& operator=(const FlatStore&) = delete;

  // The buckets of such a store, without memory.
  static std::vector<Bucket> plan(const std::vector<Param*>& params, const Options& options);

  // In the order in which backward completes them.
  [[nodiscard]] std::span<Bucket> buckets() { return buckets_; }

  [[nodiscard]] std::span<const Bucket> buckets() const { return buckets_; }

  // Sums that gradients are kept in until they are reduced.
  [[nodiscard]] int lanes() const { return lanes_; }

  // In forward order.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // Entries of one bucket, in the order they lie in it.
  [[nodiscard]] std::vector<Entry> entries_of(int bucket) const;

  // Moments of one parameter, as views of its shape, or flat if only some of it is owned; v is
  // empty for a matrix owner.
  [[nodiscard]] Tensor m(const Entry& entry) const;
  [[nodiscard]] Tensor v(const Entry& entry) const;

  // value <- round(master) of what this rank owns, where they differ in type. After a load; an
  // optimizer does it by itself.
  void refresh_values();

  // Marks every gradient as stale, so that the first micro-batch of a step overwrites it.
  void forget_grads();

  // Elements of all parameters, without padding.
  [[nodiscard]] int64_t parameter_count() const;

 private:
  FlatStore(const std::vector<Param*>& params, const Options& options);
  void bind(const std::shared_ptr<Pool>& pool);
  // An entry's elements of a buffer of what this rank owns.
  [[nodiscard]] static Tensor owned(const Entry& entry, const Bucket& bucket, const Tensor& flat);

  int lanes_;
  std::vector<Bucket> buckets_;
  std::vector<Entry> entries_;
};

}  // namespace anabranch
