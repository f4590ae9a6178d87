#include "core/tensor/pool.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/tensor/memory.h"

namespace anabranch {
namespace {

constexpr size_t kAlignment = 64;
// A cached block may be this much larger than what is asked for; more would waste memory.
constexpr size_t kSlackDivisor = 8;

// Sizes are rounded so that nearly equal requests share blocks: 64 bytes up to 4 KiB, then 1/16
// of the size's power of two.
size_t round_up(size_t bytes) {
  size_t unit = kAlignment;
  while (bytes > unit * 64) unit *= 2;
  return std::max((bytes + unit - 1) / unit * unit, kAlignment);
}

}  // namespace

Pool::~Pool() {
  blas_.reset();
  trim();
}

void* Pool::allocate(size_t bytes, const char* tag) {
  const bool reuse = reuse_ == Reuse::kAlways;
  const size_t capacity = reuse ? round_up(bytes) : std::max<size_t>(bytes, 1);
  const std::scoped_lock hold(lock_);
  void* block = nullptr;
  size_t got = capacity;
  const auto found = reuse ? free_.lower_bound(capacity) : free_.end();
  if (found != free_.end() && found->first <= capacity + capacity / kSlackDivisor) {
    got = found->first;
    block = found->second;
    free_.erase(found);
  } else {
    block = memory::allocate(device_, capacity);
    if (block == nullptr && !free_.empty()) {
      give_back();
      block = memory::allocate(device_, capacity);
    }
    if (block == nullptr) {
      throw Error(Fault::kInternal, join("[pool] no memory for ", bytes, " bytes of '", tag,
                                         "'; held: ", live_.empty() ? "nothing" : report(),
                                         ". Use smaller sizes or a smaller batch."));
    }
    reserved_ += static_cast<int64_t>(capacity);
  }
  live_[block] = {got, bytes, tag};
  usage_.live += static_cast<int64_t>(bytes);
  usage_.peak = std::max(usage_.peak, usage_.live);
  ++usage_.blocks;
  return block;
}

void Pool::release(void* block) {
  const std::scoped_lock hold(lock_);
  const auto found = live_.find(block);
  usage_.live -= static_cast<int64_t>(found->second.bytes);
  free_.emplace(found->second.capacity, block);
  live_.erase(found);
}

void Pool::trim() {
  const std::scoped_lock hold(lock_);
  give_back();
}

void Pool::give_back() {
  for (const auto& [capacity, block] : free_) {
    memory::release(device_, block, capacity);
    reserved_ -= static_cast<int64_t>(capacity);
  }
  free_.clear();
}

Pool::Usage Pool::usage() const {
  const std::scoped_lock hold(lock_);
  return usage_;
}

int64_t Pool::reserved() const {
  const std::scoped_lock hold(lock_);
  return reserved_;
}

std::vector<std::pair<std::string, int64_t>> Pool::live_by_tag() const {
  std::map<std::string, int64_t> sums;
  {
    const std::scoped_lock hold(lock_);
    for (const auto& [block, info] : live_) sums[info.tag] += static_cast<int64_t>(info.bytes);
  }
  std::vector<std::pair<std::string, int64_t>> rows(sums.begin(), sums.end());
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.second > b.second; });
  return rows;
}

std::string Pool::report() const {
  std::map<std::string, int64_t> sums;
  for (const auto& [block, info] : live_) sums[info.tag] += static_cast<int64_t>(info.bytes);
  std::string text;
  for (const auto& [tag, bytes] : sums) text += join(text.empty() ? "" : ", ", tag, " ", bytes);
  return text;
}

}  // namespace anabranch
