#include "parallel/comm/mpi_exchange.h"

#include <algorithm>
#include <array>
#include <limits>
#include <thread>
#include <utility>

#include <mpi.h>

#include "core/base/error.h"

namespace anabranch {

// Never freed: freeing is collective and would hang where a peer has died. MPI_Finalize does it.
struct MpiExchange::Communicators {
  MPI_Comm data = MPI_COMM_NULL;
  MPI_Comm watch = MPI_COMM_NULL;  // for words about who waits in what
};

struct MpiExchange::Pending {
  std::vector<MPI_Request> requests;
};

namespace {

using Clock = Patience::Clock;

constexpr int64_t kLargest = int64_t{1} << 28;  // bytes of one message: MPI counts with an int
constexpr auto kSpin = std::chrono::microseconds(20);
constexpr auto kShortNap = std::chrono::microseconds(20);
constexpr auto kLongNap = std::chrono::microseconds(200);
constexpr double kLongWait = 5;  // seconds after which the others are told, at the latest
constexpr int64_t kGaveUp = std::numeric_limits<int64_t>::max();  // told in place of a number

void check_mpi(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(Fault::kPeer, join(what, ": MPI says '", text.data(), "'"));
}

std::string host_name() {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  return name.data();
}

// "rank 3 on h2" of each rank of `comm`: the number that it was launched with, whatever it is here.
std::vector<std::string> names_of(MPI_Comm comm, int size) {
  std::array<char, MPI_MAX_PROCESSOR_NAME + 32> mine{};
  int launched = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &launched);
  const std::string name = join("rank ", launched, " on ", host_name());
  std::copy(name.begin(), name.end(), mine.begin());
  std::vector<char> all(mine.size() * static_cast<size_t>(size));
  const auto width = static_cast<int>(mine.size());
  MPI_Allgather(mine.data(), width, MPI_CHAR, all.data(), width, MPI_CHAR, comm);
  std::vector<std::string> names;
  for (int r = 0; r < size; ++r) names.emplace_back(all.data() + r * width);
  return names;
}

std::shared_ptr<MpiExchange::Communicators> own(MPI_Comm data) {
  auto comms = std::make_shared<MpiExchange::Communicators>();
  comms->data = data;
  MPI_Comm_dup(data, &comms->watch);
  MPI_Comm_set_errhandler(comms->data, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(comms->watch, MPI_ERRORS_RETURN);
  return comms;
}

}  // namespace

MpiExchange::MpiExchange(std::shared_ptr<Communicators> comms, std::shared_ptr<CommThread> thread)
    : comms_(std::move(comms)), thread_(std::move(thread)) {
  MPI_Comm_rank(comms_->data, &rank_);
  MPI_Comm_size(comms_->data, &size_);
  heard_.assign(static_cast<size_t>(size_), -1);
  names_ = names_of(comms_->data, size_);
}

MpiExchange::~MpiExchange() = default;

std::unique_ptr<MpiExchange> MpiExchange::world(std::shared_ptr<CommThread> thread) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<MpiExchange>(own(comm), std::move(thread));
}

std::unique_ptr<MpiExchange> MpiExchange::split(int color, int key) const {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comms_->data, color, key, &comm), "MPI_Comm_split");
  return std::make_unique<MpiExchange>(own(comm), thread_);
}

void MpiExchange::begin(const Collective& c) {
  text_ = c.text();
  number_ = c.number;
  waited_.reset();
  told_ = false;
}

void MpiExchange::exchange(const std::vector<Piece>& sends, const std::vector<Piece>& receives) {
  Pending pending;
  const auto post = [&](const Piece& piece, bool receive) {
    for (int64_t at = 0; at < piece.bytes; at += kLargest) {
      const auto bytes = static_cast<int>(std::min(kLargest, piece.bytes - at));
      MPI_Request& request = pending.requests.emplace_back();
      check_mpi(
          receive
              ? MPI_Irecv(piece.at + at, bytes, MPI_BYTE, piece.peer, 0, comms_->data, &request)
              : MPI_Isend(piece.at + at, bytes, MPI_BYTE, piece.peer, 0, comms_->data, &request),
          text_);
    }
  };
  for (const Piece& piece : receives) post(piece, true);
  for (const Piece& piece : sends) post(piece, false);
  finish(pending);
}

void MpiExchange::broadcast(std::byte* at, int64_t bytes, int root) {
  for (int64_t begin = 0; begin < bytes; begin += kLargest) {
    Pending pending;
    check_mpi(MPI_Ibcast(at + begin, static_cast<int>(std::min(kLargest, bytes - begin)), MPI_BYTE,
                         root, comms_->data, &pending.requests.emplace_back()),
              text_);
    finish(pending);
  }
}

void MpiExchange::barrier() {
  Pending pending;
  check_mpi(MPI_Ibarrier(comms_->data, &pending.requests.emplace_back()), text_);
  finish(pending);
}

// MPI moves data only while it is called, but a core that it spins on is one that computes less:
// spin while something happened lately, then sleep.
void MpiExchange::finish(Pending& pending) {
  auto moved = Clock::now();
  std::vector<int> indices(pending.requests.size());
  auto left = static_cast<int>(pending.requests.size());
  while (left > 0) {
    int count = 0;
    check_mpi(MPI_Testsome(static_cast<int>(pending.requests.size()), pending.requests.data(),
                           &count, indices.data(), MPI_STATUSES_IGNORE),
              text_);
    if (count > 0) {
      left -= count;
      moved = Clock::now();
      if (waited_.tick() > kLongWait) thread_->moved();
      waited_.reset();
      continue;
    }
    const auto idle = Clock::now() - moved;
    if (idle < kSpin) continue;  // no yield: where cores are busy it costs a whole time slice
    keep_patience();
    std::this_thread::sleep_for(idle < std::chrono::milliseconds(20) ? kShortNap : kLongNap);
  }
}

void MpiExchange::keep_patience() {
  thread_->check();
  const double deadline = thread_->deadline();
  const double waited = waited_.tick();
  if (deadline <= 0 || waited < std::min(deadline / 4, kLongWait)) return;
  if (!told_) tell(number_);
  told_ = true;
  listen();
  if (waited <= deadline) return;
  tell(kGaveUp);
  throw Error(Fault::kPeer, join(text_, " on ", thread_->who(), " waited ", deadline,
                                 " s for other ranks: ", who_is_missing()));
}

void MpiExchange::tell(int64_t number) {
  told_numbers_.push_back(std::make_unique<int64_t>(number));
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(told_numbers_.back().get(), 1, MPI_INT64_T, r, 0, comms_->watch, &request);
    MPI_Request_free(&request);  // it may never be received
  }
}

void MpiExchange::listen() {
  while (true) {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, 0, comms_->watch, &there, &status);
    if (there == 0) return;
    int64_t number = -1;
    MPI_Recv(&number, 1, MPI_INT64_T, status.MPI_SOURCE, 0, comms_->watch, MPI_STATUS_IGNORE);
    int64_t& last = heard_[static_cast<size_t>(status.MPI_SOURCE)];
    if (number == kGaveUp) {
      throw Error(Fault::kPeer, join(text_, " on ", thread_->who(), ": ",
                                     names_[static_cast<size_t>(status.MPI_SOURCE)],
                                     " has given up; here, ", who_is_missing()));
    }
    last = std::max(last, number);
  }
}

std::string MpiExchange::who_is_missing() const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    const int64_t heard = heard_[static_cast<size_t>(r)];
    if (r == rank_ || heard == number_) continue;
    const std::string where = (text.empty() ? "" : "; ") + names_[static_cast<size_t>(r)];
    text += heard > number_ ? join(where, " waits in collective #", heard)
                            : join(where, " has not come: hung, cut off, or far behind");
  }
  return text.empty() ? "all have come, so the network or MPI hangs" : text;
}

}  // namespace anabranch
