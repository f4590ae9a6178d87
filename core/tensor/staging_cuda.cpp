#include "core/tensor/staging_cuda.h"

#include <algorithm>
#include <cstring>

#include <cuda_runtime.h>

#include "core/cuda/check.h"

namespace anabranch::cuda {
namespace {

constexpr size_t kRing = size_t{8} << 20U, kMost = kRing / 4;
constexpr size_t kAlignment = 256;
constexpr size_t kReadback = size_t{16} << 10U;  // what the host reads goes in multiples of it

}  // namespace

Readbacks::~Readbacks() {
  for (const Readback& r : unused) {
    cudaEventDestroy(r.done);
    cudaFreeHost(r.landing);
  }
}

Staging::~Staging() {
  // All copies are done then, those too whose handles are still out.
  if (!transfers_.empty() || readbacks_->any) cudaStreamSynchronize(stream_);
  for (const Transfer& t : transfers_) cudaEventDestroy(t.done);
  for (CUevent_st* event : events_) cudaEventDestroy(event);
  cudaFreeHost(ring_);
}

void Staging::upload(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  for (size_t done = 0; done < bytes;) {
    const size_t count = std::min(bytes - done, kMost);
    const size_t begin = reserve(count);
    std::memcpy(ring_ + begin, source + done, count);
    check(cudaMemcpyAsync(target + done, ring_ + begin, count, cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    mark(begin, begin + count);
    done += count;
  }
}

size_t Staging::reserve(size_t bytes) {
  if (ring_ == nullptr) {
    void* block = nullptr;
    check(cudaMallocHost(&block, kRing), "cudaMallocHost");
    ring_ = static_cast<std::byte*>(block);
  }
  if (next_ + bytes > kRing) next_ = 0;
  const size_t begin = next_;
  next_ = (begin + bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto in_the_way = [&](const Transfer& t) {
    return t.begin < begin + bytes && begin < t.end;
  };
  while (!transfers_.empty()) {
    const Transfer& oldest = transfers_.front();
    const bool passed = cudaEventQuery(oldest.done) == cudaSuccess;
    if (!passed && std::none_of(transfers_.begin(), transfers_.end(), in_the_way)) break;
    if (!passed) {
      ++waits_;
      check(cudaEventSynchronize(oldest.done), "cudaEventSynchronize");
    }
    events_.push_back(oldest.done);
    transfers_.pop_front();
  }
  cudaGetLastError();  // "not ready" is an answer
  return begin;
}

void Staging::mark(size_t begin, size_t end) {
  if (events_.empty()) {
    check(cudaEventCreateWithFlags(&events_.emplace_back(), cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
  }
  CUevent_st* done = events_.back();
  check(cudaEventRecord(done, stream_), "cudaEventRecord");
  events_.pop_back();
  transfers_.push_back({begin, end, done});
}

std::shared_ptr<Readback> Staging::download(const void* from, size_t bytes) {
  // Given back while its copy is still under way, it serves one that comes later on the stream.
  std::shared_ptr<Readback> copy(new Readback(take_readback(bytes)),
                                 [to = readbacks_](Readback* r) {
                                   to->unused.push_back(*r);
                                   delete r;
                                 });
  check(cudaMemcpyAsync(copy->landing, from, bytes, cudaMemcpyDeviceToHost, stream_),
        "cudaMemcpyAsync");
  check(cudaEventRecord(copy->done, stream_), "cudaEventRecord");
  return copy;
}

void Staging::wait(const Readback& under_way, void* to) const {
  check(cudaEventSynchronize(under_way.done), "cudaEventSynchronize");
  std::memcpy(to, under_way.landing, under_way.bytes);
}

Readback Staging::take_readback(size_t bytes) {
  const auto large = [&](const Readback& r) { return r.capacity >= bytes; };
  std::vector<Readback>& unused = readbacks_->unused;
  if (const auto there = std::find_if(unused.begin(), unused.end(), large); there != unused.end()) {
    Readback found = *there;
    unused.erase(there);
    found.bytes = bytes;
    return found;
  }
  const size_t capacity = (bytes + kReadback - 1) / kReadback * kReadback;
  Readback made{nullptr, capacity, bytes, nullptr};
  void* block = nullptr;
  check(cudaMallocHost(&block, capacity), "cudaMallocHost");
  made.landing = static_cast<std::byte*>(block);
  const cudaError_t refused = cudaEventCreateWithFlags(&made.done, cudaEventDisableTiming);
  if (refused != cudaSuccess) cudaFreeHost(block);
  check(refused, "cudaEventCreateWithFlags");
  readbacks_->any = true;
  return made;
}

}  // namespace anabranch::cuda
