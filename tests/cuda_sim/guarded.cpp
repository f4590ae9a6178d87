#include "tests/cuda_sim/guarded.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

#include "tests/cuda_sim/block.h"

namespace anabranch::cuda_sim {
namespace {

constexpr size_t kPage = 4096, kAlignment = 32;
constexpr unsigned char kPoison = 0xFF;

// Where a block lies: [fence][data pages][fence], and the block ends with the data pages.
struct Place {
  unsigned char *data, *block;
  size_t data_bytes, behind;  // `behind`: bytes between the block's end and the fence

  static size_t rounded(size_t size) {
    return (std::max<size_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }

  static size_t pages_for(size_t size) { return (rounded(size) + kPage - 1) / kPage * kPage; }

  Place(void* fence, size_t size)
      : data(static_cast<unsigned char*>(fence) + kPage),
        block(data + pages_for(size) - rounded(size)),
        data_bytes(pages_for(size)),
        behind(rounded(size) - size) {}

  static void* fence_of(void* block, size_t size) {
    return static_cast<unsigned char*>(block) + rounded(size) - pages_for(size) - kPage;
  }
};

// What byte stands at an address outside of blocks: of 0x7FA5 in each two of them.
unsigned char canary(const unsigned char* at) {
  return reinterpret_cast<uintptr_t>(at) % 2 == 0 ? 0xA5 : 0x7F;
}

void set_canary(unsigned char* begin, unsigned char* end) {
  for (; begin < end; ++begin) *begin = canary(begin);
}

bool has_canary(const unsigned char* begin, const unsigned char* end) {
  while (begin < end && *begin == canary(begin)) ++begin;
  return begin == end;
}

struct sigaction& handler_before() {
  static struct sigaction before {};

  return before;
}

void on_bad_access(int /*signal*/, siginfo_t* info, void* /*context*/) {
  if (Block::active() != nullptr) {
    Block::active()->end_by_access(info->si_addr);  // does not come back
  }
  sigaction(SIGSEGV, &handler_before(), nullptr);  // not ours: faults again, as it would have
}

}  // namespace

void* allocate_guarded(size_t size) {
  const size_t total = Place::pages_for(size) + 2 * kPage;
  void* fence = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fence == MAP_FAILED) return nullptr;
  const Place place(fence, size);
  if (mprotect(place.data, place.data_bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(fence, total);
    return nullptr;
  }
  set_canary(place.data, place.data + place.data_bytes);
  poison(place.block, size);
  return place.block;
}

bool is_intact(const void* block, size_t size) {
  const Place place(Place::fence_of(const_cast<void*>(block), size), size);
  return has_canary(place.data, place.block) &&
         has_canary(place.block + size, place.block + size + place.behind);
}

void release_guarded(void* block, size_t size) {
  munmap(Place::fence_of(block, size), Place::pages_for(size) + 2 * kPage);
}

void poison(void* block, size_t size) { std::memset(block, kPoison, size); }

void catch_bad_accesses() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler is left by a switch, not a return
    sigaction(SIGSEGV, &action, &handler_before());
  });
}

}  // namespace anabranch::cuda_sim
