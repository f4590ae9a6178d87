#include "parallel/comm/group.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/memory.h"
#include "parallel/comm/comm_thread.h"

namespace anabranch {
namespace {

class SelfGroup final : public Group {
 public:
  SelfGroup() : Group(0, 1, nullptr) {}

  void abort(const std::string& /*reason*/) override {}

  std::unique_ptr<Group> split(int /*color*/, int /*key*/) override { return self_group(); }

 private:
  void run(const Collective& /*c*/) override {}
};

void check_sums(const Tensor& x, CollectiveKind kind) {
  const DType type = x.dtype();
  AB_CHECK(
      type == DType::kF32 || type == DType::kBF16 || type == DType::kF64 || type == DType::kI64,
      name_of(kind), " of ", name_of(type), "; expected float32, bfloat16, float64 or int64");
}

void check_parts(const Tensor& whole, const Tensor& part, int size, CollectiveKind kind) {
  AB_CHECK(whole.dtype() == part.dtype() && whole.count() == part.count() * size, name_of(kind),
           " over ", size, " ranks between ", name_of(whole.dtype()), whole.shape(), " and ",
           name_of(part.dtype()), part.shape(), "; expected one type and ", size,
           " times the elements");
}

std::vector<int64_t> equal_parts(int64_t count, int size) {
  std::vector<int64_t> begins;
  for (int r = 0; r <= size; ++r) begins.push_back(r * count);
  return begins;
}

void check_begins(const Tensor& whole, const std::vector<int64_t>& begins, int size,
                  CollectiveKind kind) {
  AB_CHECK(std::ssize(begins) == size + 1 && std::ranges::is_sorted(begins) &&
               begins.front() == 0 && begins.back() == whole.count(),
           name_of(kind), " of parts of ", whole.shape(), " over ", size, " ranks got ",
           begins.size(), " places that end at ", begins.empty() ? -1 : begins.back());
}

// Checks that the segments are the rows of `t`.
void check_segments(const Tensor& t, const std::vector<RowSegment>& segments, int size,
                    const char* name) {
  AB_CHECK(t.shape().rank() > 0, "all_to_all got a tensor without rows");
  int64_t rows = 0;
  for (const RowSegment& s : segments) {
    AB_CHECK(
        0 <= s.rank && s.rank < size && 0 <= s.first && 0 <= s.rows && s.first + s.rows <= t.dim(0),
        "all_to_all got ", name, " of rows ", s.first, " to ", s.first + s.rows, " of ", t.shape(),
        " and rank ", s.rank, " of ", size);
    rows += s.rows;
  }
  AB_CHECK(rows == t.dim(0), "all_to_all got a tensor of ", t.shape(), " whose ", name, " have ",
           rows, " rows");
}

void copy(Tensor& to, const Tensor& from) {
  if (to.raw() != from.raw()) to.copy_from(from);
}

Collective in_place(CollectiveKind kind, Tensor x) {
  Collective c{.kind = kind, .in = x};
  c.out = std::move(x);
  return c;
}

}  // namespace

int64_t row_bytes(const Tensor& t) {
  return std::accumulate(t.shape().begin() + 1, t.shape().end(), size_of(t.dtype()),
                         std::multiplies<>());
}

std::vector<RowSegment> in_rank_order(const std::vector<int64_t>& rows) {
  std::vector<RowSegment> all;
  int64_t first = 0;
  for (const int64_t n : rows) {
    all.push_back({static_cast<int>(all.size()), first, n});
    first += n;
  }
  return all;
}

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduceSum:
      return "all_reduce_sum";
    case CollectiveKind::kAllReduceMax:
      return "all_reduce_max";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatterSum:
      return "reduce_scatter_sum";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string Collective::text() const {
  const std::string named = join(name_of(kind), " #", number);
  const Tensor& larger = in.count() > out.count() ? in : out;
  return larger.empty() ? named : join(named, " of ", name_of(larger.dtype()), larger.shape());
}

Group::Group(int rank, int size, std::shared_ptr<CommThread> thread)
    : rank_(rank),
      size_(size),
      exceptions_(std::uncaught_exceptions()),
      thread_(std::move(thread)) {}

void Group::leave() {
  if (std::uncaught_exceptions() > exceptions_) {
    std::string reason = "an exception ended its work";
    try {
      thread_->check();
    } catch (const Error& known) {
      reason = known.what();
    }
    abort(reason);
  }
  thread_->drain();
}

Work Group::all_reduce_sum(Tensor x) {
  check_sums(x, CollectiveKind::kAllReduceSum);
  if (size_ == 1) return {};
  return start(in_place(CollectiveKind::kAllReduceSum, std::move(x)));
}

Work Group::all_reduce_max(Tensor x) {
  check_sums(x, CollectiveKind::kAllReduceMax);
  if (size_ == 1) return {};
  return start(in_place(CollectiveKind::kAllReduceMax, std::move(x)));
}

Work Group::all_gather(Tensor whole, Tensor part) {
  check_parts(whole, part, size_, CollectiveKind::kAllGather);
  if (size_ == 1) {
    copy(whole, part);
    return {};
  }
  std::vector<int64_t> begins = equal_parts(part.count(), size_);
  return start({.kind = CollectiveKind::kAllGather,
                .out = std::move(whole),
                .in = std::move(part),
                .begins = std::move(begins)});
}

Work Group::all_gather_parts(const Tensor& whole, std::vector<int64_t> begins) {
  return start_parts(CollectiveKind::kAllGather, whole, std::move(begins));
}

Work Group::reduce_scatter_sum(Tensor part, Tensor whole) {
  check_sums(whole, CollectiveKind::kReduceScatterSum);
  check_parts(whole, part, size_, CollectiveKind::kReduceScatterSum);
  if (size_ == 1) {
    copy(part, whole);
    return {};
  }
  std::vector<int64_t> begins = equal_parts(part.count(), size_);
  return start({.kind = CollectiveKind::kReduceScatterSum,
                .out = std::move(part),
                .in = std::move(whole),
                .begins = std::move(begins)});
}

Work Group::reduce_scatter_parts_sum(const Tensor& whole, std::vector<int64_t> begins) {
  check_sums(whole, CollectiveKind::kReduceScatterSum);
  return start_parts(CollectiveKind::kReduceScatterSum, whole, std::move(begins));
}

Work Group::start_parts(CollectiveKind kind, const Tensor& whole, std::vector<int64_t> begins) {
  check_begins(whole, begins, size_, kind);
  if (size_ == 1) return {};
  const auto mine = begins.begin() + rank_;
  const Tensor part = whole.view(mine[0], {mine[1] - mine[0]});
  Collective c{.kind = kind, .out = whole, .in = part, .begins = std::move(begins)};
  if (kind == CollectiveKind::kReduceScatterSum) std::swap(c.out, c.in);
  return start(std::move(c));
}

Work Group::broadcast(Tensor x, int root) {
  AB_CHECK(0 <= root && root < size_, "broadcast from rank ", root, " of a group of ", size_);
  if (size_ == 1) return {};
  Collective c = in_place(CollectiveKind::kBroadcast, std::move(x));
  c.root = root;
  return start(std::move(c));
}

Work Group::all_to_all(Tensor to, Tensor from, const std::vector<int64_t>& send_rows,
                       const std::vector<int64_t>& recv_rows) {
  AB_CHECK(std::ssize(send_rows) == size_ && std::ssize(recv_rows) == size_, "all_to_all got ",
           send_rows.size(), " send_rows and ", recv_rows.size(), " recv_rows for ", size_,
           " ranks");
  return all_to_all_segments(std::move(to), std::move(from), in_rank_order(send_rows),
                             in_rank_order(recv_rows));
}

Work Group::all_to_all_segments(Tensor to, Tensor from, std::vector<RowSegment> sends,
                                std::vector<RowSegment> receives) {
  check_segments(from, sends, size_, "sends");
  check_segments(to, receives, size_, "receives");
  AB_CHECK(row_bytes(from) == row_bytes(to) && to.dtype() == from.dtype(), "all_to_all from ",
           name_of(from.dtype()), from.shape(), " to ", name_of(to.dtype()), to.shape(),
           "; rows must be of one size and type");
  Collective c{.kind = CollectiveKind::kAllToAll,
               .out = std::move(to),
               .in = std::move(from),
               .sends = std::move(sends),
               .receives = std::move(receives)};
  if (size_ > 1) return start(std::move(c));
  // Alone there is no queue in whose order elements come: what is on its way is waited for here.
  static_cast<void>(c.in.raw());
  static_cast<void>(c.out.raw());
  take_segments(c, 0, c, 0);
  return {};
}

void Group::take_segments(const Collective& c, int to, const Collective& source, int from) {
  Tensor out = c.out;
  const int64_t row = row_bytes(out);
  auto next = source.sends.begin();
  for (const RowSegment& wanted : c.receives) {
    if (wanted.rank != from) continue;
    next = std::find_if(next, source.sends.end(), [to](const auto& s) { return s.rank == to; });
    const int64_t sent = next == source.sends.end() ? 0 : next->rows;
    AB_CHECK(sent == wanted.rows, c.text(), ": rank ", from, " sends ", sent, " rows to rank ", to,
             ", which expects ", wanted.rows);
    if (next == source.sends.end()) continue;
    memory::copy(out.device(), out.landing() + wanted.first * row,
                 source.in.landing() + next->first * row, static_cast<size_t>(sent * row),
                 out.stream());
    ++next;
  }
  const bool more = std::any_of(next, source.sends.end(),
                                [to](const auto& s) { return s.rank == to && s.rows > 0; });
  AB_CHECK(!more, c.text(), ": rank ", from, " sends rank ", to, " more rows than it expects");
}

void Group::barrier() {
  if (size_ > 1) start({.kind = CollectiveKind::kBarrier}).wait();
}

void Group::set_deadline(double seconds) {
  if (thread_) thread_->set_deadline(seconds);
}

void Group::set_trace(Trace* trace) {
  if (thread_) thread_->set_trace(trace);
}

void Group::check() const {
  if (thread_) thread_->check();
}

CommStats Group::stats() const { return thread_ ? thread_->stats() : CommStats{}; }

CommProgress Group::progress() const { return thread_ ? thread_->progress() : CommProgress{}; }

Work Group::start(Collective c) {
  AB_CHECK(thread_ != nullptr, c.text(), " in a group of ", size_,
           " ranks that cannot communicate");
  c.number = started_++;
  return submit(std::move(c));
}

Work Group::submit(Collective c) {
  AB_CHECK(c.in.device().is_cpu() && c.out.device().is_cpu(), c.text(),
           " of tensors of a GPU in a group of CPUs: device_group() makes one that takes them");
  const auto bytes = static_cast<int64_t>(std::max(c.in.bytes(), c.out.bytes()));
  CommThread::Job job{c.text(), c.kind, bytes, nullptr};
  job.run = [this, c = std::move(c)] { run(c); };
  return thread_->submit(std::move(job));
}

std::unique_ptr<Group> self_group() { return std::make_unique<SelfGroup>(); }

}  // namespace anabranch
