// Ranks as MPI processes. Collectives with sums are made of messages, so that they add in the order
// of reduce.h, bf16 through fp32, with the same bits as ranks that are threads: each rank gets its
// share of the elements from all others, sums it, and sends the sum to all. That is the traffic of
// a ring in two steps instead of 2(n - 1).

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <malloc.h>
#include <thread>
#include <utility>

#include <mpi.h>

#include "core/base/error.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/comm/mpi_exchange.h"
#include "parallel/comm/mpi_world.h"
#include "parallel/comm/reduce.h"

namespace anabranch {
namespace {

// The value of the first of these variables that is there; null if none is.
const char* environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return value;
  }
  return nullptr;
}

using Piece = MpiExchange::Piece;

constexpr int64_t kSmall = int64_t{16} << 10;   // bytes: below, all send all and each sums all
constexpr int64_t kSegment = int64_t{8} << 20;  // bytes reduced at a time: bounds the scratch

class MpiGroup final : public Group {
 public:
  MpiGroup(std::unique_ptr<MpiExchange> exchange, std::shared_ptr<CommThread> comm)
      : Group(exchange->rank(), exchange->size(), std::move(comm)), mpi_(std::move(exchange)) {}

  ~MpiGroup() override { leave(); }

  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  void abort(const std::string& reason) override {
    thread()->fail(Error(Fault::kPeer, join(thread()->who(), " failed: ", reason)));
  }

  std::unique_ptr<Group> split(int color, int key) override {
    std::unique_ptr<MpiExchange> part;
    CommThread::Job job{"split", {}, 0, [&] { part = mpi_->split(color, key); }};
    thread()->submit(std::move(job)).wait();
    return std::make_unique<MpiGroup>(std::move(part), thread());
  }

 private:
  void run(const Collective& c) override {
    mpi_->begin(c);
    Tensor out = c.out;
    Tensor in = c.in;  // only read
    switch (c.kind) {
      case CollectiveKind::kAllReduceSum:
      case CollectiveKind::kAllReduceMax:
        return all_reduce(c, out);
      case CollectiveKind::kAllGather:
        return all_gather(c, out, in);
      case CollectiveKind::kReduceScatterSum:
        return reduce_scatter(c, out, in);
      case CollectiveKind::kBroadcast:
        return mpi_->broadcast(out.landing(), bytes_of(out), c.root);
      case CollectiveKind::kAllToAll:
        return all_to_all(c, out, in);
      case CollectiveKind::kBarrier:
        return mpi_->barrier();
    }
  }

  // The other ranks, each rank starting with its next, so that not all send to one.
  template <class F>
  void for_peers(const F& f) const {
    for (int i = 1; i < size(); ++i) f((rank() + i) % size());
  }

  void all_reduce(const Collective& c, Tensor& x) {
    const int64_t width = size_of(x.dtype());
    if (bytes_of(x) <= kSmall) {
      std::byte* at = x.landing();
      return reduce(
          c, at, x.count() * width, [&](int) { return at; }, at);
    }
    for (int64_t begin = 0; begin < x.count(); begin += kSegment / width) {
      const int64_t count = std::min(kSegment / width, x.count() - begin);
      std::byte* at = x.landing() + begin * width;
      const auto share = [&](int r) { return at + share_begin(count, size(), r) * width; };
      const auto bytes = [&](int r) { return share(r + 1) - share(r); };
      reduce_shares(c, share, bytes, share(rank()));
      std::vector<Piece> sends, receives;
      for_peers([&](int r) {
        sends.push_back({r, share(rank()), bytes(rank())});
        receives.push_back({r, share(r), bytes(r)});
      });
      mpi_->exchange(sends, receives);
    }
  }

  // to <- the sum over ranks of `share(this rank)`, which may be the place.
  template <class Share, class Bytes>
  void reduce_shares(const Collective& c, const Share& share, const Bytes& bytes, std::byte* to) {
    std::vector<Piece> sends;
    for_peers([&](int r) { sends.push_back({r, share(r), bytes(r)}); });
    sum_incoming(c, sends, share(rank()), bytes(rank()), to);
  }

  // to <- over ranks, `mine` and what `send_to(r)` of each peer r holds; all of `bytes`.
  template <class From>
  void reduce(const Collective& c, std::byte* mine, int64_t bytes, const From& send_to,
              std::byte* to) {
    std::vector<Piece> sends;
    for_peers([&](int r) { sends.push_back({r, send_to(r), bytes}); });
    sum_incoming(c, sends, mine, bytes, to);
  }

  void sum_incoming(const Collective& c, const std::vector<Piece>& sends, const std::byte* mine,
                    int64_t bytes, std::byte* to) {
    const auto room = static_cast<size_t>(bytes);
    scratch_.resize(std::max(scratch_.size(), room * static_cast<size_t>(size() - 1)));
    std::vector<const std::byte*> parts(static_cast<size_t>(size()), mine);
    std::vector<Piece> receives;
    for_peers([&](int r) {
      std::byte* at = scratch_.data() + room * receives.size();
      receives.push_back({r, at, bytes});
      parts[static_cast<size_t>(r)] = at;
    });
    mpi_->exchange(sends, receives);
    reduce_in_order(c.out.dtype(), c.kind, to, parts, bytes / size_of(c.out.dtype()));
  }

  // The bytes of each rank's part in what is gathered or scattered.
  [[nodiscard]] static std::vector<int64_t> part_bytes(const Collective& c) {
    std::vector<int64_t> bytes;
    for (size_t r = 0; r + 1 < c.begins.size(); ++r) {
      bytes.push_back((c.begins[r + 1] - c.begins[r]) * size_of(c.out.dtype()));
    }
    return bytes;
  }

  void reduce_scatter(const Collective& c, Tensor& part, Tensor& whole) {
    const std::vector<int64_t> all = part_bytes(c);
    const int64_t segment = std::max<int64_t>(64, kSegment / size() / 64 * 64);
    for (int64_t begin = 0; begin < *std::ranges::max_element(all); begin += segment) {
      const auto of = [&](int r) { return all[static_cast<size_t>(r)]; };
      const auto share = [&](int r) {
        return whole.landing() + c.begins[static_cast<size_t>(r)] * size_of(c.out.dtype()) +
               std::min(begin, of(r));
      };
      const auto bytes = [&](int r) { return std::clamp<int64_t>(of(r) - begin, 0, segment); };
      reduce_shares(c, share, bytes, part.landing() + std::min(begin, of(rank())));
    }
  }

  void all_gather(const Collective& c, Tensor& whole, Tensor& part) {
    const std::vector<int64_t> all = part_bytes(c);
    const auto place = [&](int r) {
      return Piece{r, whole.landing() + c.begins[static_cast<size_t>(r)] * size_of(c.out.dtype()),
                   all[static_cast<size_t>(r)]};
    };
    const Piece mine = place(rank());
    if (mine.at != part.landing()) std::copy_n(part.landing(), mine.bytes, mine.at);
    std::vector<Piece> sends, receives;
    for_peers([&](int r) {
      sends.push_back({r, mine.at, mine.bytes});
      receives.push_back(place(r));
    });
    mpi_->exchange(sends, receives);
  }

  void all_to_all(const Collective& c, Tensor& to, Tensor& from) {
    take_segments(c, rank(), c, rank());
    const auto places = [&](Tensor& t, const std::vector<RowSegment>& segments) {
      const int64_t row = row_bytes(t);
      std::vector<Piece> all;
      for (const RowSegment& s : segments) {
        if (s.rank != rank() && s.rows > 0) {
          all.push_back({s.rank, t.landing() + s.first * row, s.rows * row});
        }
      }
      const auto turn = [&](const Piece& p) { return (p.peer - rank() + size()) % size(); };
      std::ranges::stable_sort(all, {}, turn);
      return all;
    };
    mpi_->exchange(places(from, c.sends), places(to, c.receives));
  }

  static int64_t bytes_of(const Tensor& t) { return static_cast<int64_t>(t.bytes()); }

  std::unique_ptr<MpiExchange> mpi_;
  std::vector<std::byte> scratch_;
};

}  // namespace

MpiWorld::MpiWorld() : exceptions_(std::uncaught_exceptions()) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 0x7FFFFFFF);
  // We poll and nap instead of waiting within MPI. If MPI yielded at each poll, the communication
  // thread would lose its core to the computing one for a time slice each time, and the network
  // would idle.
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
  // Over TCP a large message is one fragment otherwise: the answer that starts the message of the
  // other direction queues behind it, and of two directions one waits for the other.
  setenv("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "131072", 0);
  int provided = 0;
  // Several threads at once only where one of them ends the job.
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) {
    throw config_error("MPI gives thread level ", provided, " but MPI_THREAD_MULTIPLE (",
                       MPI_THREAD_MULTIPLE, ") is needed; use a build of MPI with threads");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

MpiWorld::~MpiWorld() {
  if (std::uncaught_exceptions() > exceptions_) abort(static_cast<int>(Fault::kInternal));
  // Whoever comes first naps till the others do: MPI_Finalize would spin.
  MPI_Request all_here = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &all_here);
  for (int done = 0; done == 0;) {
    MPI_Test(&all_here, &done, MPI_STATUS_IGNORE);
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  MPI_Finalize();
}

std::unique_ptr<Group> MpiWorld::group() const {
  if (size_ == 1) return self_group();
  char host[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(host, &length);
  auto comm = std::make_shared<CommThread>(join("rank ", rank_, " of ", size_, " on ", host));
  std::unique_ptr<MpiExchange> all;
  CommThread::Job job{"set-up", {}, 0, [&] { all = MpiExchange::world(comm); }};
  comm->submit(std::move(job)).wait();
  return std::make_unique<MpiGroup>(std::move(all), comm);
}

void MpiWorld::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();  // not reached
}

bool started_by_mpi() {
  return environment({"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) != nullptr;
}

int started_rank() {
  const char* rank = environment({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  return rank != nullptr ? std::atoi(rank) : 0;
}

int started_ranks() {
  if (!started_by_mpi()) return 1;  // SLURM names its tasks to batch scripts too
  const char* ranks = environment({"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"});
  return ranks != nullptr ? std::atoi(ranks) : 1;
}

}  // namespace anabranch
