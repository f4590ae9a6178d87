// The memory of a rank's tensors: a caching allocator in stream order, with a tag on every block.
//
// Fresh pages are slow on virtual machines and cudaMalloc stalls a GPU, so blocks are kept when
// freed and handed out again. A block freed on a rank's compute stream may be reused at once by
// later work of that stream; whoever uses it on another stream or thread holds a reference to it
// until that work is done. On a CPU, program order is that stream. The stream is the pool's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tensor/device.h"
#include "core/tensor/stream.h"

namespace anabranch {

namespace cuda {
class Blas;
}

class Pool {
 public:
  struct Usage {
    int64_t live = 0;    // bytes asked for and not yet given back
    int64_t peak = 0;    // highest `live`
    int64_t blocks = 0;  // allocations ever made
  };

  // kNever: each block is a new one of just the size asked for, for tests that look for reads of
  // what was never written and for accesses past the end.
  enum class Reuse : uint8_t { kAlways, kNever };

  explicit Pool(Device device = {}, Reuse reuse = Reuse::kAlways)
      : device_(device), reuse_(reuse), stream_(device) {}

  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] Device device() const { return device_; }

  // The compute stream of the rank whose memory this is.
  [[nodiscard]] const Stream& stream() const { return stream_; }

  // Matrix products on that stream, of a GPU; made when first asked for. For the rank's own thread.
  [[nodiscard]] cuda::Blas& blas();

  // `bytes` of memory aligned to 64, uninitialised. `tag` says who holds it; a string literal.
  // Where the system has no more, cached blocks that fit nobody go back to it first. Throws Error
  // if memory runs out even so, naming what holds how much.
  void* allocate(size_t bytes, const char* tag);
  void release(void* block);

  // Gives the cached blocks back to the system.
  void trim();

  [[nodiscard]] Usage usage() const;
  // Live bytes by tag, largest first.
  [[nodiscard]] std::vector<std::pair<std::string, int64_t>> live_by_tag() const;
  // Bytes taken from the system, live or cached.
  [[nodiscard]] int64_t reserved() const;

 private:
  struct Block {
    size_t capacity, bytes;
    const char* tag;
  };

  // With the lock held:
  [[nodiscard]] std::string report() const;  // the holders, for an error
  void give_back();                          // trim()

  Device device_;
  Reuse reuse_;
  Stream stream_;
  mutable std::mutex lock_;
  std::multimap<size_t, void*> free_;      // by capacity
  std::unordered_map<void*, Block> live_;  // by address; never iterated on a result path
  Usage usage_;
  int64_t reserved_ = 0;
  std::shared_ptr<cuda::Blas> blas_;  // with a workspace of this pool
};

}  // namespace anabranch
