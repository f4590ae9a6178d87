#include "tests/cuda_sim/fiber.h"

#include <new>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

#include "core/base/build.h"

// ab_sim_switch(void** keep, void* load): pushes the registers that a callee must keep, swaps the
// stacks, pops, jumps. A jump in place of a return keeps the return predictors of two stacks apart.
// It exists for x86-64 alone; elsewhere the build ends here, in the assembler.
asm(R"(
.text
.globl ab_sim_switch
.type ab_sim_switch,@function
ab_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.size ab_sim_switch,.-ab_sim_switch
)");
extern "C" void ab_sim_switch(void** keep, void* load);

namespace anabranch::cuda_sim {
namespace {

constexpr size_t kStackSize = size_t{build::kSanitized ? 256 : 64} << 10U;
constexpr size_t kGuard = 4096;
constexpr size_t kMost = 1024;  // threads of a block
constexpr size_t kStride = kStackSize + kGuard;
constexpr size_t kEntryFrame = 4096;  // more than entry()'s
constexpr int kKeptRegisters = 6;

// One reservation for all stacks; only pages that are touched cost memory.
struct Stacks {
  std::byte* base = nullptr;
  std::vector<Fiber> made;

  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  ~Stacks() {
    if (base != nullptr) munmap(base, kMost * kStride);
  }

  void reserve() {
    void* block = mmap(nullptr, kMost * kStride, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) throw std::bad_alloc();
    base = static_cast<std::byte*>(block);
  }

  void add() {
    std::byte* guard = base + made.size() * kStride;
    mprotect(guard, kGuard, PROT_NONE);  // an overflow ends the program instead of corrupting it
    made.push_back({nullptr, guard + kGuard, kStackSize, nullptr});
  }
};

}  // namespace

void switch_fiber(Fiber& from, Fiber& to, Leaving leaving) {
  if constexpr (build::kSanitized) {
    void** shadow = leaving == Leaving::kForGood ? nullptr : &from.shadow;
    __sanitizer_start_switch_fiber(shadow, to.stack, to.stack_size);
  }
  ab_sim_switch(&from.stack_pointer, to.stack_pointer);
  if constexpr (build::kSanitized) __sanitizer_finish_switch_fiber(from.shadow, nullptr, nullptr);
}

void entered(Fiber& from) {
  if constexpr (build::kSanitized) {
    const void* bottom = nullptr;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &from.stack_size);
    from.stack = static_cast<std::byte*>(const_cast<void*>(bottom));
  }
}

void prepare(Fiber& fiber, void (*entry)()) {
  if constexpr (build::kSanitized) {
    // The frame of an entry() that ended is still marked: it never returned.
    std::byte* end = fiber.stack + fiber.stack_size;
    __asan_unpoison_memory_region(end - kEntryFrame, kEntryFrame);
  }
  auto** top = reinterpret_cast<void**>(fiber.stack + fiber.stack_size);
  *--top = nullptr;  // where entry would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kKeptRegisters; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

void abandon(Fiber& fiber) {
  if constexpr (build::kSanitized) __asan_unpoison_memory_region(fiber.stack, fiber.stack_size);
}

std::vector<Fiber>& fibers(size_t count) {
  static thread_local Stacks stacks;
  if (stacks.base == nullptr) stacks.reserve();
  while (stacks.made.size() < count) stacks.add();
  return stacks.made;
}

}  // namespace anabranch::cuda_sim
