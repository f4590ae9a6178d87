// Messages between the ranks of one MPI communicator: what the collectives of MPI groups are made
// of. Used on the communication thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/comm_thread.h"
#include "parallel/comm/patience.h"

namespace anabranch {

class MpiExchange {
 public:
  struct Piece {
    int peer;
    std::byte* at;  // a piece to send is only read
    int64_t bytes;
  };

  struct Communicators;  // MPI's handles

  // Takes over the communicators; collective over their ranks.
  MpiExchange(std::shared_ptr<Communicators> comms, std::shared_ptr<CommThread> thread);
  ~MpiExchange();
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  // All ranks of the job. MPI runs.
  static std::unique_ptr<MpiExchange> world(std::shared_ptr<CommThread> thread);
  // As MPI_Comm_split.
  [[nodiscard]] std::unique_ptr<MpiExchange> split(int color, int key) const;

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int size() const { return size_; }

  // Names what runs from here on, in messages about ranks that do not come.
  void begin(const Collective& c);

  // Sends and receives all pieces; the pieces between two ranks meet in order.
  void exchange(const std::vector<Piece>& sends, const std::vector<Piece>& receives);
  void broadcast(std::byte* at, int64_t bytes, int root);
  void barrier();

 private:
  struct Pending;  // MPI's requests

  void finish(Pending& pending);
  // Called while nothing moves: throws if the thread has failed, this rank or another has waited
  // for too long.
  void keep_patience();
  // Tells the others where this rank waits.
  void tell(int64_t number);
  // Takes what they tell.
  void listen();
  [[nodiscard]] std::string who_is_missing() const;

  std::shared_ptr<Communicators> comms_;
  std::shared_ptr<CommThread> thread_;
  int rank_ = 0, size_ = 1;
  std::string text_;
  int64_t number_ = 0;
  Patience waited_;  // since something moved
  bool told_ = false;
  std::vector<int64_t> heard_;      // by rank: the collective it last said it waits in
  std::vector<std::string> names_;  // by rank, as it was launched
  std::vector<std::unique_ptr<int64_t>> told_numbers_;  // being sent
};

}  // namespace anabranch
