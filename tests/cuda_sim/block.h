// One block of a simulated kernel: its threads, its shared memory, and who waits for whom.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda_sim/device.h"
#include "tests/cuda_sim/fiber.h"
#include "tests/cuda_sim/launch.h"
#include "tests/cuda_sim/sim.h"

namespace anabranch::cuda_sim {

// What a kernel did wrong.
struct KernelFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// SplitMix64: small, and good enough to shuffle with.
struct Random {
  uint64_t state;

  size_t below(size_t n) {
    uint64_t z = (state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return static_cast<size_t>((z ^ (z >> 31U)) % n);
  }
};

class Block {
 public:
  explicit Block(const KernelCall& call);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Runs all threads of block `number`. Throws KernelFault.
  void run(size_t number);

  // The block that runs on this host thread, or null.
  static Block*& active();

  // What follows is called by the block's threads.
  void barrier(Site site);
  void collective(const Collective& call);
  void* shared(const void* key, size_t size);
  void let_others_run();  // in the random order, now and then
  void copy_async(void* to, const void* from, size_t bytes, size_t zeros);
  void commit_async();
  void wait_async(size_t pending_batches);
  // Ends the running thread and the kernel: it touched what is not its.
  void end_by_access(const void* address);

  [[nodiscard]] int lane() const { return static_cast<int>(current_ % 32); }

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kAtCollective, kDone };

  struct AsyncCopy {
    void* to;
    const void* from;
    size_t bytes, zeros;  // of which so many, at the end, are not read
  };

  struct Thread {
    State state = State::kReady;
    uint3 index{};
    Collective waits{};                           // where and in what
    std::vector<std::vector<AsyncCopy>> batches;  // the last is still open

    [[nodiscard]] std::string where() const;
  };

  struct Shared {
    const void* key;  // null: the dynamic part
    void* data;
    size_t size;
  };

  void begin(size_t number);
  void thread_main();
  void resume(size_t thread);
  void suspend(State state, Leaving leaving = Leaving::kForNow);
  size_t next();
  bool complete(size_t warp, unsigned mask);
  void unblock();
  void note_access(const void* address);
  void check_together(const Thread& waiter) const;
  void check_shared() const;

  const KernelCall& call_;
  size_t count_;
  std::vector<Fiber>& fibers_;
  Fiber scheduler_;
  std::vector<Thread> threads_;
  std::vector<unsigned> live_, waiting_;  // of each warp: lanes not exited, lanes at a collective
  std::vector<size_t> ready_;             // from head_ on
  size_t head_ = 0, current_ = 0, done_ = 0;
  std::vector<Shared> shared_;
  Random random_;
  Order order_;
  std::string fault_;
};

// Runs a kernel to its end and returns its fault, or "".
std::string run_kernel(const KernelCall& call);

}  // namespace anabranch::cuda_sim
