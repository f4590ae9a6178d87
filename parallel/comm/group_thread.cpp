// Ranks as threads of one process. Each rank's communication thread shows its tensors to the
// others at a meeting and reads theirs; nothing is sent.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/comm/group.h"
#include "parallel/comm/reduce.h"

namespace anabranch {
namespace {

using Clock = std::chrono::steady_clock;

// Where the ranks of one group meet; all under the hub's lock.
struct Meeting {
  explicit Meeting(int size) : shown(static_cast<size_t>(size)), came(shown.size(), -1) {}

  std::vector<Collective> shown;  // by rank, what it runs
  std::vector<int64_t> came;      // by rank, the last round it came to
  int count = 0;                  // who has come to this round
  int64_t round = 0;
};

// What all groups of one run_on_threads share.
struct Hub {
  using ChildKey = std::tuple<const Meeting*, int64_t, int>;  // parent, which split, color

  std::mutex lock;
  std::condition_variable changed;
  std::optional<Error> failure;
  std::map<ChildKey, std::shared_ptr<Meeting>> children;
  std::vector<std::weak_ptr<CommThread>> ranks;

  void fail(const Error& error) {
    std::vector<std::weak_ptr<CommThread>> all;
    {
      const std::scoped_lock hold(lock);
      if (!failure) failure = error;
      all = ranks;
    }
    changed.notify_all();
    for (const auto& rank : all) {
      if (const auto thread = rank.lock()) thread->fail(error);
    }
  }

  void add(const std::shared_ptr<CommThread>& rank) {
    const std::scoped_lock hold(lock);
    ranks.push_back(rank);
  }
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(int rank, std::shared_ptr<Meeting> meeting, std::shared_ptr<Hub> hub,
              std::shared_ptr<CommThread> comm)
      : Group(rank, static_cast<int>(meeting->shown.size()), std::move(comm)),
        meeting_(std::move(meeting)),
        hub_(std::move(hub)) {}

  ~ThreadGroup() override { leave(); }

  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  void abort(const std::string& reason) override {
    const Error error(Fault::kPeer, join(thread()->who(), " failed: ", reason));
    hub_->fail(error);
  }

  std::unique_ptr<Group> split(int color, int key) override {
    const Tensor mine = Tensor::of<int64_t>({2}, {color, key});
    Tensor all({2 * size()}, DType::kI64);
    all_gather(all, mine).wait();
    std::vector<std::pair<int64_t, int>> members;  // key, rank
    for (int r = 0; r < size(); ++r) {
      if (all.data<int64_t>()[2 * r] == color)
        members.emplace_back(all.data<int64_t>()[2 * r + 1], r);
    }
    std::sort(members.begin(), members.end());
    const auto me = std::find_if(members.begin(), members.end(),
                                 [&](const auto& m) { return m.second == rank(); });
    const std::scoped_lock hold(hub_->lock);
    std::shared_ptr<Meeting>& child = hub_->children[{meeting_.get(), splits_++, color}];
    if (!child) child = std::make_shared<Meeting>(static_cast<int>(members.size()));
    return std::make_unique<ThreadGroup>(static_cast<int>(me - members.begin()), child, hub_,
                                         thread());
  }

 private:
  void run(const Collective& c) override {
    {
      const std::scoped_lock hold(hub_->lock);
      meeting_->shown[static_cast<size_t>(rank())] = c;
    }
    meet(c);
    {
      const std::scoped_lock hold(hub_->lock);
      peers_ = meeting_->shown;  // holds their tensors, should one of them leave with an error
    }
    std::exception_ptr error;
    try {
      check_agreement(c);
      move(c);
    } catch (...) {
      error = std::current_exception();
    }
    peers_.clear();
    meet(c);  // till then the others may read what this rank shows
    {
      const std::scoped_lock hold(hub_->lock);
      meeting_->shown[static_cast<size_t>(rank())] = {};
    }
    if (error) std::rethrow_exception(error);
  }

  void move(const Collective& c) {
    switch (c.kind) {
      case CollectiveKind::kAllReduceSum:
      case CollectiveKind::kAllReduceMax:
        return all_reduce(c);
      case CollectiveKind::kAllGather:
        return gather(c);
      case CollectiveKind::kReduceScatterSum:
        return reduce(c, c.out, c.begins[static_cast<size_t>(rank())]);
      case CollectiveKind::kBroadcast:
        if (rank() != c.root) put(c, 0, shown(c.root), 0, bytes_of(c.out));
        return;
      case CollectiveKind::kAllToAll:
        for (int r = 0; r < size(); ++r) take_segments(c, rank(), shown(r), r);
        return;
      case CollectiveKind::kBarrier:
        return;
    }
  }

  // Each rank sums its share in place, which no one else reads, then takes the others' shares.
  void all_reduce(const Collective& c) {
    const int64_t begin = share_begin(c.out.count(), size(), rank());
    const int64_t end = share_begin(c.out.count(), size(), rank() + 1);
    Tensor share = c.out.view(begin, {end - begin});
    reduce(c, share, begin);
    meet(c);
    const int64_t width = size_of(c.out.dtype());
    for (int r = 0; r < size(); ++r) {
      const int64_t from = share_begin(c.out.count(), size(), r);
      const int64_t to = share_begin(c.out.count(), size(), r + 1);
      if (r != rank()) put(c, from * width, shown(r), from * width, (to - from) * width);
    }
  }

  void gather(const Collective& c) {
    const int64_t width = size_of(c.out.dtype());
    for (int r = 0; r < size(); ++r) {
      put(c, c.begins[static_cast<size_t>(r)] * width, shown(r), 0, bytes_of(shown(r).in));
    }
  }

  // Copies bytes that a peer shows into this rank's output.
  static void put(const Collective& c, int64_t to, const Collective& peer, int64_t from,
                  int64_t bytes) {
    Tensor out = c.out;
    if (bytes == 0 || out.landing() + to == peer.in.landing() + from) return;
    std::copy_n(peer.in.landing() + from, bytes, out.landing() + to);
  }

  // out <- over ranks of `out.count()` elements from `begin` on.
  void reduce(const Collective& c, Tensor out, int64_t begin) {
    std::vector<const std::byte*> parts;
    for (int r = 0; r < size(); ++r) {
      parts.push_back(shown(r).in.landing() + begin * size_of(out.dtype()));
    }
    reduce_in_order(out.dtype(), c.kind, out.landing(), parts, out.count());
  }

  void check_agreement(const Collective& c) const {
    for (int r = 0; r < size(); ++r) {
      const Collective& other = shown(r);
      const bool same = c.kind == other.kind && c.number == other.number && c.root == other.root &&
                        (c.kind == CollectiveKind::kBarrier || c.in.dtype() == other.in.dtype()) &&
                        c.begins == other.begins &&
                        (c.kind == CollectiveKind::kAllToAll ||
                         c.kind == CollectiveKind::kAllGather || c.in.count() == other.in.count());
      AB_CHECK(same, thread()->who(), " calls ", c.text(), " where rank ", r, " calls ",
               other.text(), "; all ranks of a group must call the same");
    }
  }

  // Returns when all ranks have come.
  void meet(const Collective& c) {
    std::unique_lock hold(hub_->lock);
    const int64_t round = meeting_->round;
    meeting_->came[static_cast<size_t>(rank())] = round;
    if (++meeting_->count == size()) {
      meeting_->count = 0;
      ++meeting_->round;
      hub_->changed.notify_all();
      return;
    }
    const auto over = [&] { return meeting_->round != round || hub_->failure.has_value(); };
    const double deadline = thread()->deadline();
    if (deadline <= 0) {
      hub_->changed.wait(hold, over);
    } else if (!hub_->changed.wait_for(hold, std::chrono::duration<double>(deadline), over)) {
      throw Error(Fault::kPeer, join(c.text(), " on ", thread()->who(), " waited ", deadline,
                                     " s for ", absent(), ": hung, or far behind"));
    }
    if (meeting_->round == round) throw Error(*hub_->failure);
  }

  // Who has not come to the meeting; lock held.
  [[nodiscard]] std::string absent() const {
    std::string names;
    for (int r = 0; r < size(); ++r) {
      const bool here = meeting_->came[static_cast<size_t>(r)] == meeting_->round;
      if (!here) names += join(names.empty() ? "rank " : ", rank ", r);
    }
    return names;
  }

  static int64_t bytes_of(const Tensor& t) { return static_cast<int64_t>(t.bytes()); }

  [[nodiscard]] const Collective& shown(int r) const { return peers_[static_cast<size_t>(r)]; }

  std::shared_ptr<Meeting> meeting_;
  std::shared_ptr<Hub> hub_;
  std::vector<Collective> peers_;  // by rank, while a collective runs
  int64_t splits_ = 0;
};

}  // namespace

void run_on_threads(int size, const std::function<void(Group&)>& body) {
  AB_CHECK(size >= 1, "a group of ", size, " ranks");
  if (size == 1) return body(*self_group());
  const auto hub = std::make_shared<Hub>();
  const auto meeting = std::make_shared<Meeting>(size);
  std::mutex lock;
  std::exception_ptr first;
  bool first_is_echo = false;  // that another rank was lost, so its own error is to be preferred
  const auto rank_main = [&](int r) {
    const auto comm = std::make_shared<CommThread>(join("rank ", r, " of ", size));
    hub->add(comm);
    ThreadGroup group(r, meeting, hub, comm);
    const auto failed = [&](const std::string& what, bool echo) {
      {
        const std::scoped_lock hold(lock);
        if (!first || (first_is_echo && !echo)) {
          first = std::current_exception();
          first_is_echo = echo;
        }
      }
      group.abort(what);
    };
    try {
      body(group);
    } catch (const Error& e) {
      failed(e.what(), e.fault() == Fault::kPeer);
    } catch (const std::exception& e) {
      failed(e.what(), false);
    } catch (...) {
      failed("an exception of unknown type", false);
    }
  };
  std::vector<std::thread> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) ranks.emplace_back(rank_main, r);
  for (std::thread& rank : ranks) rank.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace anabranch
