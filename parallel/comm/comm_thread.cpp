#include "parallel/comm/comm_thread.h"

#include <chrono>
#include <exception>
#include <utility>

#include "core/base/range.h"
#include "parallel/comm/patience.h"

namespace anabranch {
namespace {

using Clock = Patience::Clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

Error hung(const HostWork& work, double seconds) {
  return {Fault::kPeer,
          join(work.text, " on ", work.comm->who, " did not move for ", seconds,
               " s and its communication thread does not answer; a rank or the network hangs")};
}

}  // namespace

void HostWork::wait() {
  std::unique_lock hold(comm->lock);
  if (is_done) return;
  const auto begin = Clock::now();
  Patience patience;
  int64_t moves = comm->moves;
  while (!is_done && !comm->failure) {
    if (comm->deadline <= 0) {
      comm->changed.wait(hold);
      continue;
    }
    // The communication thread keeps the deadline itself and knows more; this is for when it hangs.
    const double grace = 1.25 * comm->deadline + 2;
    comm->changed.wait_for(hold, std::chrono::duration<double>(Patience::kLongestGap / 2));
    if (moves != comm->moves) {
      moves = comm->moves;
      patience.reset();
    }
    const bool over = patience.tick() >= grace && !is_done && !comm->failure;
    if (over) comm->failure = hung(*this, grace);
  }
  // If another rank has failed, this work may all the same be about to end well.
  constexpr auto kAboutToEnd = std::chrono::milliseconds(100);
  if (!is_done) comm->changed.wait_for(hold, kAboutToEnd, [&] { return is_over; });
  const double waited = seconds_between(begin, Clock::now());
  blocked += waited;
  comm->blocked += waited;
  if (!is_done) throw Error(*comm->failure);
}

bool HostWork::done() {
  const std::scoped_lock hold(comm->lock);
  return is_done;
}

double HostWork::seconds() {
  const std::scoped_lock hold(comm->lock);
  return took;
}

double HostWork::held_up() {
  const std::scoped_lock hold(comm->lock);
  return blocked;
}

CommThread::CommThread(std::string who) : state_(std::make_shared<CommState>()) {
  state_->who = std::move(who);
  thread_ = std::thread([this] { loop(); });
}

CommThread::~CommThread() {
  {
    const std::scoped_lock hold(state_->lock);
    stop_ = true;
  }
  state_->changed.notify_all();
  thread_.join();
}

Work CommThread::submit(Job job) {
  auto work = std::make_shared<HostWork>(state_, job.text);
  {
    const std::scoped_lock hold(state_->lock);
    if (state_->failure) throw Error(*state_->failure);
    ++state_->moves;
    queue_.push_back({std::move(job), work});
  }
  state_->changed.notify_all();
  return Work(work);
}

void CommThread::fail(const Error& error) {
  {
    const std::scoped_lock hold(state_->lock);
    if (!state_->failure) state_->failure = error;
  }
  state_->changed.notify_all();
}

void CommThread::drain() {
  std::unique_lock hold(state_->lock);
  state_->changed.wait(hold, [&] { return queue_.empty() && !busy_; });
}

void CommThread::check() const {
  const std::scoped_lock hold(state_->lock);
  if (state_->failure) throw Error(*state_->failure);
}

void CommThread::set_deadline(double seconds) {
  const std::scoped_lock hold(state_->lock);
  state_->deadline = seconds;
}

double CommThread::deadline() const {
  const std::scoped_lock hold(state_->lock);
  return state_->deadline;
}

void CommThread::set_trace(Trace* trace) {
  const std::scoped_lock hold(state_->lock);
  trace_ = trace;
}

CommStats CommThread::stats() const {
  const std::scoped_lock hold(state_->lock);
  CommStats stats = stats_;
  stats.blocked = state_->blocked;
  return stats;
}

CommProgress CommThread::progress() const {
  const std::scoped_lock hold(state_->lock);
  return progress_;
}

void CommThread::moved() {
  const std::scoped_lock hold(state_->lock);
  ++state_->moves;
}

void CommThread::loop() {
  std::unique_lock hold(state_->lock);
  while (true) {
    state_->changed.wait(hold, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Queued item = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    const bool wanted = !state_->failure;
    ++state_->moves;
    if (item.job.kind) {
      progress_.started = item.job.text;
      ++progress_.starts;
    }
    hold.unlock();
    const bool done = wanted && run(item);
    item.job.run = nullptr;  // lets go of the tensors before anyone hears that it is done
    hold.lock();
    item.work->is_done = done;
    item.work->is_over = true;
    busy_ = false;
    ++state_->moves;
    if (done && item.job.kind) {
      progress_.finished = item.job.text;
      ++progress_.finishes;
    }
    state_->changed.notify_all();
  }
}

bool CommThread::run(Queued& item) {
  const auto begin = Clock::now();
  std::optional<Error> error;
  const Range range(item.job.kind ? name_of(*item.job.kind) : "group");
  try {
    item.job.run();
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(Fault::kInternal, join(item.job.text, " on ", state_->who, ": ", e.what()));
  }
  const auto end = Clock::now();
  const std::scoped_lock hold(state_->lock);
  if (error) {
    if (!state_->failure) state_->failure = *error;
    return false;
  }
  item.work->took = seconds_between(begin, end);
  if (item.job.kind) count(*item.job.kind, item.job.bytes, begin, end);
  return true;
}

void CommThread::count(CollectiveKind kind, int64_t bytes, Clock::time_point begin,
                       Clock::time_point end) {
  CommStats::Count& count = stats_.by_kind[static_cast<size_t>(kind)];
  ++count.calls;
  count.bytes += bytes;
  count.seconds += seconds_between(begin, end);
  if (trace_ != nullptr && trace_->on()) {
    trace_->add_span(Lane::kComm, name_of(kind), begin, end);
  }
}

void CommThread::note_start(const std::string& text) {
  const std::scoped_lock hold(state_->lock);
  ++state_->moves;
  progress_.started = text;
  ++progress_.starts;
}

void CommThread::note_end(const std::string& text, CollectiveKind kind, int64_t bytes,
                          Clock::time_point begin, Clock::time_point end) {
  const std::scoped_lock hold(state_->lock);
  ++state_->moves;
  progress_.finished = text;
  ++progress_.finishes;
  count(kind, bytes, begin, end);
}

}  // namespace anabranch
