#include "tests/cuda_sim/block.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/base/error.h"
#include "tests/cuda_sim/guarded.h"
#include "tests/cuda_sim/machine.h"

// NOLINTBEGIN: CUDA's names, and one set for each thread that runs a kernel.
constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

// NOLINTEND

namespace anabranch::cuda_sim {
namespace {

constexpr size_t kWarp = 32;
constexpr const char* kBarrier = "__syncthreads";

unsigned bit_of(size_t thread) { return 1U << static_cast<unsigned>(thread % kWarp); }

uint3 place(size_t number, dim3 extent) {
  return {static_cast<unsigned>(number % extent.x),
          static_cast<unsigned>(number / extent.x % extent.y),
          static_cast<unsigned>(number / extent.x / extent.y)};
}

std::string text(const uint3& at) { return join("(", at.x, ",", at.y, ",", at.z, ")"); }

bool same_site(const Site& a, const Site& b) {
  return a.line == b.line && std::string_view(a.file) == b.file;
}

}  // namespace

std::string Block::Thread::where() const {
  const std::string me = "thread " + text(index);
  if (state == State::kDone) return me + " has exited";
  if (state == State::kReady) return me + " runs";
  return join(me, " waits in ", waits.name, " at ", waits.site.file, ":", waits.site.line);
}

Block*& Block::active() {
  static thread_local Block* block = nullptr;
  return block;
}

Block::Block(const KernelCall& call)
    : call_(call),
      count_(call.threads()),
      fibers_(fibers(count_)),
      threads_(count_),
      live_((count_ + kWarp - 1) / kWarp),
      waiting_(live_.size()),
      random_{options().seed},
      order_(options().order) {
  if (call.shared_bytes > 0) {
    shared_.push_back({nullptr, allocate_guarded(call.shared_bytes), call.shared_bytes});
  }
}

Block::~Block() {
  active() = nullptr;
  for (const Shared& memory : shared_) release_guarded(memory.data, memory.size);
  for (size_t i = 0; i < count_ && done_ < count_; ++i) abandon(fibers_[i]);  // after a fault
}

void Block::begin(size_t number) {
  blockIdx = place(number, call_.grid);
  for (const Shared& memory : shared_) poison(memory.data, memory.size);
  std::fill(live_.begin(), live_.end(), ~0U);
  if (count_ % kWarp != 0) live_.back() = bit_of(count_) - 1;
  std::fill(waiting_.begin(), waiting_.end(), 0U);
  ready_.clear();
  head_ = done_ = 0;
  for (size_t i = 0; i < count_; ++i) {
    threads_[i] = {};
    threads_[i].index = place(i, call_.block);
    prepare(fibers_[i], [] { active()->thread_main(); });
    ready_.push_back(i);
  }
}

void Block::run(size_t number) {
  begin(number);
  active() = this;
  while (done_ < count_) {
    while (head_ < ready_.size()) {
      resume(next());
      if (!fault_.empty()) throw KernelFault(fault_);
    }
    ready_.clear();
    head_ = 0;
    if (done_ < count_) unblock();
  }
  active() = nullptr;
  check_shared();
}

// The ready thread whose turn it is.
size_t Block::next() {
  if (order_ == Order::kForward) return ready_[head_++];
  if (order_ == Order::kRandom) {
    std::swap(ready_[head_ + random_.below(ready_.size() - head_)], ready_.back());
  }
  const size_t last = ready_.back();
  ready_.pop_back();
  return last;
}

void Block::resume(size_t thread) {
  current_ = thread;
  threadIdx = threads_[thread].index;
  switch_fiber(scheduler_, fibers_[thread]);
}

void Block::suspend(State state, Leaving leaving) {
  threads_[current_].state = state;
  switch_fiber(fibers_[current_], scheduler_, leaving);
}

void Block::thread_main() {
  entered(scheduler_);
  try {
    call_.body();
    commit_async();
    wait_async(0);  // nobody waited for these copies: they land late
  } catch (const std::exception& error) {
    fault_ = "thread " + text(threadIdx) + ": " + error.what();
  }
  live_[current_ / kWarp] &= ~bit_of(current_);
  ++done_;
  suspend(State::kDone, Leaving::kForGood);
}

void Block::end_by_access(const void* address) {
  note_access(address);  // whose frame is gone before this one is left for good
  suspend(State::kDone, Leaving::kForGood);
}

void Block::note_access(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::string what = describe_address(address);
  for (const Shared& memory : shared_) {
    const auto end = reinterpret_cast<uintptr_t>(memory.data) + memory.size;
    if (at < end || at - end > 4096) continue;
    what = join(at - end, " bytes past the end of ", memory.size, " bytes of shared memory");
  }
  fault_ = "thread " + text(threadIdx) + ": touched an address that is not its: " + what;
}

void Block::barrier(Site site) {
  threads_[current_].waits = {kBarrier, 0, nullptr, nullptr, site};
  suspend(State::kAtBarrier);
}

void Block::let_others_run() {
  if (order_ != Order::kRandom || random_.below(4) != 0) return;
  ready_.push_back(current_);
  suspend(State::kReady);
}

void Block::collective(const Collective& call) {
  const size_t warp = current_ / kWarp;
  if ((call.mask & bit_of(current_)) == 0) {
    fault(std::string(call.name) + ": the calling lane is not in its own mask");
  }
  threads_[current_].waits = call;
  threads_[current_].state = State::kAtCollective;
  waiting_[warp] |= bit_of(current_);
  if (!complete(warp, call.mask)) suspend(State::kAtCollective);
}

// Runs the collective of the lanes in `mask` if all of them that have not exited are there.
bool Block::complete(size_t warp, unsigned mask) {
  const unsigned need = mask & live_[warp];
  if ((need & ~waiting_[warp]) != 0) return false;
  std::array<void*, kWarp> slots{};
  const auto thread_of = [&](int lane) -> Thread& {
    return threads_[warp * kWarp + static_cast<size_t>(lane)];
  };
  const Thread& first = thread_of(std::countr_zero(need));
  for_lanes(need, [&](int lane) {
    const Thread& thread = thread_of(lane);
    if (thread.waits.mask != mask || thread.waits.complete != first.waits.complete ||
        !same_site(thread.waits.site, first.waits.site)) {
      throw KernelFault("warp divergence: " + first.where() + ", but " + thread.where());
    }
    slots[static_cast<size_t>(lane)] = thread.waits.slot;
  });
  first.waits.complete(need, slots.data());
  waiting_[warp] &= ~need;
  for_lanes(need, [&](int lane) {
    const size_t i = warp * kWarp + static_cast<size_t>(lane);
    threads_[i].state = State::kReady;
    if (i != current_) ready_.push_back(i);
  });
  return true;
}

// No thread can run: frees those of a barrier or a collective, or says who waits for whom.
void Block::unblock() {
  current_ = count_;  // none
  for (size_t i = 0; i < count_; ++i) {
    if (threads_[i].state == State::kAtCollective && complete(i / kWarp, threads_[i].waits.mask)) {
      return;
    }
  }
  const auto waits = [](const Thread& t) { return t.state != State::kDone; };
  check_together(*std::find_if(threads_.begin(), threads_.end(), waits));
  for (size_t i = 0; i < count_; ++i) {
    threads_[i].state = State::kReady;
    ready_.push_back(i);
  }
}

// All threads are at the barrier where `waiter` is.
void Block::check_together(const Thread& waiter) const {
  for (const Thread& thread : threads_) {
    if (waiter.state == State::kAtCollective && thread.state == State::kDone) continue;
    if (thread.state == waiter.state && same_site(thread.waits.site, waiter.waits.site)) continue;
    throw KernelFault("barrier divergence: " + waiter.where() + ", but " + thread.where());
  }
  if (waiter.state == State::kAtCollective) {
    throw KernelFault("deadlock: " + waiter.where() + " for lanes that never come");
  }
}

void* Block::shared(const void* key, size_t size) {
  for (const Shared& memory : shared_) {
    if (memory.key == key) return memory.data;
  }
  if (key == nullptr) fault("dynamic shared memory is used but the launch asked for none");
  size_t total = size;
  for (const Shared& memory : shared_) total += memory.size;
  if (total > options().shared_bytes) {
    fault(join(total, " bytes of shared memory are more than the ", options().shared_bytes,
               " of a block"));
  }
  shared_.push_back({key, allocate_guarded(size), size});
  return shared_.back().data;
}

void Block::check_shared() const {
  for (const Shared& memory : shared_) {
    if (is_intact(memory.data, memory.size)) continue;
    throw KernelFault(join("shared memory was written outside its ", memory.size, " bytes"));
  }
}

void Block::copy_async(void* to, const void* from, size_t bytes, size_t zeros) {
  check_aligned(to, bytes);
  check_aligned(from, bytes);
  auto& batches = threads_[current_].batches;
  if (batches.empty()) batches.emplace_back();
  batches.back().push_back({to, from, bytes, zeros});
}

void Block::commit_async() {
  auto& batches = threads_[current_].batches;
  if (batches.empty()) batches.emplace_back();
  batches.emplace_back();
}

void Block::wait_async(size_t pending_batches) {
  auto& batches = threads_[current_].batches;
  while (batches.size() > pending_batches + 1) {  // the open one does not count
    for (const AsyncCopy& copy : batches.front()) {
      const size_t read = copy.bytes - copy.zeros;
      if (read > 0) std::memcpy(copy.to, copy.from, read);
      std::memset(static_cast<std::byte*>(copy.to) + read, 0, copy.zeros);
    }
    batches.erase(batches.begin());
  }
}

}  // namespace anabranch::cuda_sim
