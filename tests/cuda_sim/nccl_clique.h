// The simulated NCCL's communicators: what their ranks put on streams, and how it meets.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include "tests/cuda_sim/machine.h"

namespace anabranch::cuda_sim {

enum class Verb : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kSend,
  kRecv
};

// A call as one rank makes it.
struct NcclCall {
  Verb verb{};
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type{};
  ncclRedOp_t op = ncclSum;
  int peer = 0;       // the root, or the other end
  size_t number = 0;  // which collective of its rank it is, or message between the two
  bool done = false;

  [[nodiscard]] bool between_two() const { return verb == Verb::kSend || verb == Verb::kRecv; }

  [[nodiscard]] std::string text() const;  // "all-gather of 5 float32"
};

class Launch;

// A call whose stream has come to it.
struct Posted {
  std::shared_ptr<Launch> launch;  // which owns it
  NcclCall* call = nullptr;
};

// One rank of a communicator.
struct NcclRank {
  int device = -1;  // -1: not there yet
  bool gone = false;
  ncclResult_t error = ncclSuccess;
  std::deque<std::shared_ptr<Launch>> coming;  // on streams that have not come to them
  std::deque<Posted> collectives;              // the oldest first
  size_t called = 0, posted = 0;               // collectives so far
  int open = 0;                                // launches that are not done
};

// What the ranks of a communicator share; used by whoever has the turn.
class Clique : public std::enable_shared_from_this<Clique> {
 public:
  explicit Clique(int size) : ranks_(static_cast<size_t>(size)) {}

  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  [[nodiscard]] NcclRank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }

  [[nodiscard]] bool all_here() const;

  // Puts calls of a rank on a stream, as one piece of work.
  void launch(int rank, std::vector<NcclCall> calls, CUstream_st* stream);

  // A rank has gone with work under way, or the network: nothing gets done any more.
  void break_up() { broken_ = true; }

  // A rank needs it no more.
  void leave(int rank);

 private:
  friend class Launch;

  struct Between {  // messages from one rank to another
    std::deque<Posted> sends, receives;
    size_t called_sends = 0, called_receives = 0, sent = 0, received = 0;  // `sent`: posted
  };

  void post(int rank, const Posted& posted);
  void meet();  // does all that all have come to
  void do_collective(const std::vector<NcclCall*>& calls);
  void do_message(int from, int to, NcclCall& send, NcclCall& receive);
  bool agree(const std::vector<NcclCall*>& calls);
  bool check_memory(int rank, const NcclCall& call);
  void stop_all(const std::string& why);
  // Ranks that have not come to a call.
  [[nodiscard]] std::vector<int> late_for(int rank, const NcclCall& call);

  std::vector<NcclRank> ranks_;
  std::map<std::pair<int, int>, Between> between_;
  bool broken_ = false;
};

// The calls of one group on one communicator: one kernel.
class Launch final : public JointWork, public std::enable_shared_from_this<Launch> {
 public:
  Launch(std::shared_ptr<Clique> clique, int rank, std::vector<NcclCall> calls, CUstream_st* stream)
      : calls_(std::move(calls)), clique_(std::move(clique)), rank_(rank), stream_(stream) {}

  bool reach() override;
  CUstream_st* blocker() override;

 private:
  std::vector<NcclCall> calls_;
  std::shared_ptr<Clique> clique_;
  int rank_;
  CUstream_st* stream_;
  bool reached_ = false;
};

}  // namespace anabranch::cuda_sim
