// The smallest user-level switch between stacks: the threads of a simulated block are such fibers.
#pragma once

#include <cstddef>
#include <vector>

namespace anabranch::cuda_sim {

struct Fiber {
  void* stack_pointer = nullptr;  // kept while it does not run
  std::byte* stack = nullptr;     // lowest usable byte; of a scheduler, learnt at its first switch
  size_t stack_size = 0;
  void* shadow = nullptr;  // AddressSanitizer's
};

enum class Leaving : unsigned char { kForNow, kForGood };

// Keeps the running fiber in `from` and goes on with `to`.
void switch_fiber(Fiber& from, Fiber& to, Leaving leaving = Leaving::kForNow);

// Has `fiber` begin with entry(), on an empty stack, when it is first switched to. entry() must
// not return.
void prepare(Fiber& fiber, void (*entry)());

// The first call of entry(): `from` is what switched to it.
void entered(Fiber& from);

// What is on the fiber's stack is gone, although its functions never returned.
void abandon(Fiber& fiber);

// This thread's fibers, kept for its next kernel; at least `count`, at most 1024.
std::vector<Fiber>& fibers(size_t count);

}  // namespace anabranch::cuda_sim
