// A set of ranks that communicate: the one interface over threads, MPI and GPUs.
//
// Collectives are asynchronous and run in the order in which they were started, on one
// communication thread per rank that all groups split from one parent share. So every rank starts
// the same collectives of a group in the same order, from one thread at a time; and where two
// groups overlap, all their ranks agree on the order between them.
//
// Every sum adds the ranks in one order, that of a balanced binary tree, so its bits depend neither
// on timing nor on the kind of group. A group of one rank copies and has no thread.
//
// A device_group() takes tensors of a GPU too: those collectives run on the GPU, on one stream per
// rank, in the same order. Their sums are NCCL's, in an order and with roundings of bfloat16 that
// are its own, and a maximum may lose a NaN.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "core/tensor/tensor.h"
#include "parallel/comm/work.h"

namespace anabranch {

class CommThread;

enum class CollectiveKind : uint8_t {
  kAllReduceSum,
  kAllReduceMax,
  kAllGather,
  kReduceScatterSum,
  kBroadcast,
  kAllToAll,
  kBarrier
};
inline constexpr int kCollectiveKinds = 7;
[[nodiscard]] const char* name_of(CollectiveKind kind);

// Rows of a tensor that go to a rank, or come from it.
struct RowSegment {
  int rank = 0;
  int64_t first = 0, rows = 0;
};

// The bytes of a row of t [n, ...].
[[nodiscard]] int64_t row_bytes(const Tensor& t);

// Segments one after the other, of rows[r] rows for each rank r.
[[nodiscard]] std::vector<RowSegment> in_rank_order(const std::vector<int64_t>& rows);

// What one rank asks of the others; `in` and `out` are one tensor where it works in place.
struct Collective {
  CollectiveKind kind{};
  Tensor out = {}, in = {};
  int root = 0;
  std::vector<RowSegment> sends = {}, receives = {};  // all-to-all only: of `in`, of `out`
  std::vector<int64_t> begins = {};                   // all-gather, reduce-scatter: of the parts
  int64_t number = 0;                                 // counts the collectives of the group, from 0

  [[nodiscard]] std::string text() const;  // "all_reduce_sum #12 of float32[100]"
};

// What a rank has communicated since it started, over all groups that share its thread.
struct CommStats {
  struct Count {
    int64_t calls = 0;
    int64_t bytes = 0;   // of the larger tensor of each call
    double seconds = 0;  // waiting for peers included
  };

  std::array<Count, kCollectiveKinds> by_kind;
  double blocked = 0;  // seconds that Work::wait() held up its callers, or a GPU's streams

  [[nodiscard]] const Count& of(CollectiveKind kind) const {
    return by_kind[static_cast<size_t>(kind)];
  }
};

// Where a rank's communication is, over all groups that share its thread.
struct CommProgress {
  std::string started = "none";   // the last that began: "all_gather #12 of float32[100]"
  std::string finished = "none";  // the last that is done
  int64_t starts = 0, finishes = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int size() const { return size_; }

  // x <- sum, or greatest, over ranks of x. float32, bfloat16 (summed in float32 and rounded once),
  // float64, int64. A NaN of any rank stays one.
  Work all_reduce_sum(Tensor x);
  Work all_reduce_max(Tensor x);
  // whole <- every rank's part, in rank order.
  //
  //   whole  [size() * n, ...]  of any type
  //   part   [n, ...]           may be this rank's place in whole
  Work all_gather(Tensor whole, Tensor part);
  // part <- this rank's slice of the sum over ranks of whole; shapes and types as above.
  Work reduce_scatter_sum(Tensor part, Tensor whole);
  // The same in place, of parts of any size.
  //
  //   whole   of the sum afterwards only this rank's part is of use
  //   begins  [size() + 1]  rank r's part is elements begins[r] to begins[r + 1] - 1 of whole,
  //                         which they cover in rank order
  Work all_gather_parts(const Tensor& whole, std::vector<int64_t> begins);
  Work reduce_scatter_parts_sum(const Tensor& whole, std::vector<int64_t> begins);
  // x <- the x of rank `root`.
  Work broadcast(Tensor x, int root);
  // Sends rows of `from` to each rank, in rank order, and puts what comes in, in rank order, in
  // `to`.
  //
  //   to         [sum of recv_rows, ...]  of any type
  //   from       [sum of send_rows, ...]  rows of the same size and type
  //   send_rows  [size()]                 how many rows each rank gets from this one
  //   recv_rows  [size()]                 how many rows this rank gets from each
  Work all_to_all(Tensor to, Tensor from, const std::vector<int64_t>& send_rows,
                  const std::vector<int64_t>& recv_rows);
  // The same of rows that lie anywhere: nothing needs to be packed. The segments that one rank
  // sends to another are, in order, as long as those that it receives of it.
  //
  //   sends     every row of `from` once, in any order
  //   receives  every row of `to` once
  Work all_to_all_segments(Tensor to, Tensor from, std::vector<RowSegment> sends,
                           std::vector<RowSegment> receives);
  // Returns when every rank has come.
  void barrier();

  // Makes every wait of this rank throw Error (peer lost) with `reason`, and where ranks are
  // threads every wait of the others. Where they are processes the caller goes on to
  // MpiWorld::abort(), which ends them.
  virtual void abort(const std::string& reason) = 0;

  // Throws what a wait would if this rank's communication has failed: for whoever has read on the
  // host what a collective on a GPU brought.
  void check() const;

  // The group of the ranks that gave the same `color`, ordered by `key`, then by rank here.
  virtual std::unique_ptr<Group> split(int color, int key) = 0;

  // How long one collective may take before its wait throws, naming who is missing: no one else
  // would notice a hung rank. 0: for ever. Holds for all groups that share the thread.
  void set_deadline(double seconds);
  // Where collectives are recorded as spans; null: nowhere. Kept by reference.
  void set_trace(Trace* trace);
  [[nodiscard]] CommStats stats() const;
  [[nodiscard]] CommProgress progress() const;

 protected:
  // `thread` is null for a group that is alone.
  Group(int rank, int size, std::shared_ptr<CommThread> thread);

  // For destructors of groups: waits until the thread no longer needs this group; aborts it first
  // if an exception is in flight.
  void leave();

  [[nodiscard]] const std::shared_ptr<CommThread>& thread() const { return thread_; }

  // For groups made from another: its thread, and a checked collective that it shall run.
  static std::shared_ptr<CommThread> thread_of(const Group& group) { return group.thread_; }

  static Work start_on(Group& group, Collective c) { return group.start(std::move(c)); }

  // Copies what `source`, the all-to-all of rank `from`, sends to rank `to`, whose own is `c`.
  static void take_segments(const Collective& c, int to, const Collective& source, int from);

 private:
  // Starts a checked collective: has the communication thread run() it.
  virtual Work submit(Collective c);
  // Runs it to its end; called on the communication thread.
  virtual void run(const Collective& c) = 0;

  Work start(Collective c);
  Work start_parts(CollectiveKind kind, const Tensor& whole, std::vector<int64_t> begins);

  int rank_;
  int size_;
  int64_t started_ = 0;
  int exceptions_;  // in flight when it was made
  std::shared_ptr<CommThread> thread_;
};

// This rank alone.
std::unique_ptr<Group> self_group();

// Runs `body` on `size` threads, one rank each. A rank that throws aborts the group, so that no
// one waits for it; the first exception is rethrown when all have ended.
void run_on_threads(int size, const std::function<void(Group& world)>& body);

}  // namespace anabranch
