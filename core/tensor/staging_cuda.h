// What the host sends to a GPU, and what it does not wait for at once, goes through memory that the
// GPU reads and writes by itself, so that the host neither waits for what is on the stream before
// it nor for the transfer. For core/tensor alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

struct CUstream_st;
struct CUevent_st;

namespace anabranch::cuda {

// A copy to the host that is under way.
struct Readback {
  std::byte* landing;
  size_t capacity, bytes;
  CUevent_st* done;
};

// Those that nobody uses, to use again. It and every copy under way hold it, so that a copy may end
// after the staging that began it.
struct Readbacks {
  std::vector<Readback> unused;
  bool any = false;  // made

  Readbacks() = default;
  ~Readbacks();
  Readbacks(const Readbacks&) = delete;
  Readbacks& operator=(const Readbacks&) = delete;
};

// Used by one thread at a time.
class Staging {
 public:
  // `stream` outlives it. Takes its memory with the first transfer.
  explicit Staging(CUstream_st* stream) : stream_(stream) {}

  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Copies to the GPU in the order of the stream. `from` may be written again when the call
  // returns. Throws Error with CUDA's reason.
  void upload(void* to, const void* from, size_t bytes);

  // Begins to copy to the host, in the order of the stream. It ends with wait(), or unwanted with
  // its handle, which may outlive this.
  std::shared_ptr<Readback> download(const void* from, size_t bytes);
  // Returns when the copy is done, with its bytes in `to`.
  void wait(const Readback& under_way, void* to) const;

  // Times that there was no room and the host had to wait.
  [[nodiscard]] int64_t waits() const { return waits_; }

 private:
  // Bytes [begin, end) of the ring, free once `done` has passed.
  struct Transfer {
    size_t begin, end;
    CUevent_st* done;
  };

  // Where the next `bytes` go.
  size_t reserve(size_t bytes);
  void mark(size_t begin, size_t end);
  // One that nobody uses, of so many bytes or more.
  Readback take_readback(size_t bytes);

  CUstream_st* stream_;
  std::byte* ring_ = nullptr;
  size_t next_ = 0;
  std::deque<Transfer> transfers_;   // in the order of the ring
  std::vector<CUevent_st*> events_;  // to use again
  std::shared_ptr<Readbacks> readbacks_ = std::make_shared<Readbacks>();
  int64_t waits_ = 0;
};

}  // namespace anabranch::cuda
