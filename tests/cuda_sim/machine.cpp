#include "tests/cuda_sim/machine.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/base/error.h"

namespace anabranch::cuda_sim {
namespace {

// The allocation in which [address, address + size) lies, or null; lock held.
const Allocation* find(const void* address, size_t size) {
  const auto* first = static_cast<const char*>(address);
  const auto& all = machine().allocations;
  auto it = all.upper_bound(first);
  if (it == all.begin()) return nullptr;
  --it;
  return first + size <= it->first + it->second.size ? &it->second : nullptr;
}

std::vector<CUstream_st*> streams_of(const SimDevice& device) {
  const std::scoped_lock hold(machine().lock);
  return device.streams;
}

// Streams that wait for each other stay so for ever, on a GPU too.
void report_deadlock(const std::vector<CUstream_st*>& circle) {
  for (const CUstream_st* stream : circle) {
    stop_device(stream->device,
                "streams of several devices wait for each other for ever: their "
                "collectives are not in one order");
  }
}

// The stream whose next piece of work runs when `wanted` has to get on; null if a host has to.
CUstream_st* choose(CUstream_st* wanted) {
  const Streams policy = options().streams;
  SimDevice& device = machine().devices[static_cast<size_t>(wanted->device)];
  std::vector<CUstream_st*> able;
  if (policy == Streams::kOthersFirst || policy == Streams::kRandom) {
    for (CUstream_st* stream : streams_of(device)) {
      if (stream->runnable() && (stream != wanted || policy == Streams::kRandom)) {
        able.push_back(stream);
      }
    }
  }
  if (!able.empty()) {
    Random random{options().seed + device.steps};
    return able[policy == Streams::kRandom ? random.below(able.size()) : 0];
  }
  std::vector<CUstream_st*> passed;
  while (!wanted->runnable()) {
    passed.push_back(wanted);
    CUstream_st* next = wanted->blocker();
    if (next == nullptr) return nullptr;
    if (std::find(passed.begin(), passed.end(), next) != passed.end()) {
      report_deadlock(passed);
      passed.clear();
    }
    wanted = next;
  }
  return wanted;
}

void run_next(CUstream_st* stream) {
  const StreamWork work = std::move(stream->work.front());
  stream->work.pop_front();
  const int mine = std::exchange(thread_state().device, stream->device);
  if (work.run) work.run();
  thread_state().device = mine;
  ++stream->completed;
  ++machine().devices[static_cast<size_t>(stream->device)].steps;
  machine().moved.notify_all();
}

bool is_eager() {
  return options().streams == Streams::kEager || options().streams == Streams::kDelayed;
}

// All that can run on any device and is not held up.
void run_eagerly() {
  for (bool ran = true; ran;) {
    ran = false;
    for (SimDevice& device : machine().devices) {
      for (CUstream_st* stream : streams_of(device)) {
        for (; !stream->held() && stream->runnable(); ran = true) run_next(stream);
      }
    }
  }
}

bool is_held_up(const Piece& piece) {
  if (options().streams != Streams::kDelayed) return false;
  if (options().delays) return options().delays(piece);
  const uint64_t seed = options().seed;
  const auto stream =
      64 * static_cast<uint64_t>(piece.device) + static_cast<uint64_t>(piece.stream);
  Random random{seed + (stream << 32U) + piece.number};
  return random.below(size_t{8} << seed % 6) == 0;
}

// Of dynamic shared memory: 48 KiB, and more for a kernel that asked for it on this device.
size_t shared_bytes_allowed(const KernelCall& call) {
  constexpr size_t kWithoutAsking = size_t{48} << 10U;
  const std::scoped_lock hold(machine().lock);
  const auto& allowed = current_device().shared_bytes;
  const auto found = allowed.find(call.kernel);
  const size_t most = found == allowed.end() ? 0 : found->second;
  return std::min(std::max(kWithoutAsking, most), options().shared_bytes);
}

bool fits_a_launch(const KernelCall& call) {
  const dim3 &grid = call.grid, &block = call.block;
  const bool some = call.blocks() > 0 && call.threads() > 0;
  return some && call.threads() <= 1024 && block.z <= 64 && grid.x <= 0x7FFFFFFFU &&
         grid.y <= 65535 && grid.z <= 65535 && call.shared_bytes <= shared_bytes_allowed(call);
}

}  // namespace

Machine& machine() {
  static Machine machine;
  return machine;
}

Turn take_turn() { return Turn(machine().turn); }

ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

SimDevice& current_device() {
  return machine().devices[static_cast<size_t>(thread_state().device)];
}

std::string describe_address(const void* address) {
  const std::scoped_lock hold(machine().lock);
  const auto* at = static_cast<const char*>(address);
  const auto& all = machine().allocations;
  const auto after = all.upper_bound(at);
  if (after != all.begin()) {
    const auto before = std::prev(after);
    const auto past = at - (before->first + before->second.size);
    if (past < 4096) {
      return join(past, " bytes past the end of an allocation of ", before->second.size, " bytes");
    }
  }
  if (after != all.end() && after->first - at <= 8192) {
    return join(after->first - at, " bytes before an allocation of ", after->second.size, " bytes");
  }
  return address == nullptr ? "a null pointer" : "no allocation is near";
}

bool is_on_device(const void* address, size_t size) {
  const std::scoped_lock hold(machine().lock);
  const Allocation* found = find(address, size);
  return found != nullptr && found->device != kPinned;
}

bool is_on(int device, const void* address, size_t size) {
  const std::scoped_lock hold(machine().lock);
  const Allocation* found = find(address, size);
  return found != nullptr && found->device == device;
}

bool is_pinned(const void* address, size_t size) {
  const std::scoped_lock hold(machine().lock);
  const Allocation* found = find(address, size);
  return found != nullptr && found->device == kPinned;
}

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) thread_state().last_error = error;
  return error;
}

cudaError_t reject(cudaError_t error, const std::string& why) {
  std::fprintf(stderr, "cuda_sim: %s\n", why.c_str());
  return note(error);
}

void stop_device(int device, const std::string& message) {
  std::fprintf(stderr, "cuda_sim: device %d: %s\n", device, message.c_str());
  const std::scoped_lock hold(machine().lock);
  std::string& fault = machine().devices[static_cast<size_t>(device)].fault;
  if (fault.empty()) fault = message;
}

bool is_stopped(int device) {
  const std::scoped_lock hold(machine().lock);
  return !machine().devices[static_cast<size_t>(device)].fault.empty();
}

cudaError_t report_fault(const std::string& message) {
  stop_device(thread_state().device, message);
  return note(cudaErrorLaunchFailure);
}

cudaError_t sticky_error() {
  return is_stopped(thread_state().device) ? note(cudaErrorLaunchFailure) : cudaSuccess;
}

std::string take_fault() {
  thread_state().last_error = cudaSuccess;
  const std::scoped_lock hold(machine().lock);
  return std::exchange(current_device().fault, {});
}

size_t allocated_bytes() {
  const std::scoped_lock hold(machine().lock);
  return current_device().allocated;
}

size_t pinned_bytes() {
  const std::scoped_lock hold(machine().lock);
  size_t bytes = 0;
  for (const auto& [address, a] : machine().allocations) bytes += a.device == kPinned ? a.size : 0;
  return bytes;
}

void enqueue(CUstream_st* stream, StreamWork work) {
  work.held = is_held_up(stream->piece(work));
  stream->work.push_back(std::move(work));
  ++stream->submitted;
  if (is_eager()) run_eagerly();
  machine().moved.notify_all();
}

cudaError_t submit(Turn& /*turn*/, cudaStream_t stream, StreamWork work) {
  if (sticky_error() != cudaSuccess) return cudaErrorLaunchFailure;
  if (stream == nullptr) {
    return reject(cudaErrorNotSupported, "work on the default stream: name a stream");
  }
  if (stream->device != thread_state().device) {
    return reject(cudaErrorInvalidResourceHandle, "the stream is another device's");
  }
  enqueue(stream, std::move(work));
  return sticky_error();
}

void run_until(Turn& turn, CUstream_st* stream, uint64_t ticket) {
  while (stream->completed < ticket) {
    if (CUstream_st* next = choose(stream)) {
      run_next(next);
      if (is_eager()) run_eagerly();
    } else {
      machine().moved.wait(turn);
    }
  }
}

void run_one(CUstream_st* stream) {
  if (CUstream_st* next = choose(stream)) run_next(next);
  if (is_eager()) run_eagerly();
}

void run_all(Turn& turn) {
  std::vector<CUstream_st*> streams = streams_of(current_device());
  if (options().order == Order::kReverse) std::reverse(streams.begin(), streams.end());
  for (CUstream_st* stream : streams) run_until(turn, stream, stream->submitted);
}

cudaError_t launch(KernelCall call, cudaStream_t stream) {
  if (!fits_a_launch(call)) {
    return reject(cudaErrorInvalidConfiguration, "kernel " + call.name + ": bad launch geometry");
  }
  for (size_t i = 0; i < call.pointers.size(); ++i) {
    const void* pointer = call.pointers[i];
    if (pointer == nullptr || is_on_device(pointer, 0)) continue;
    return report_fault(
        join("kernel ", call.name, ": its pointer argument ", i, " is not device memory"));
  }
  Turn turn = take_turn();
  return submit(turn, stream, {[call = std::move(call)] {
                  if (sticky_error() != cudaSuccess) return;  // nothing runs any more
                  const std::string fault = run_kernel(call);
                  if (!fault.empty()) report_fault(fault);
                }});
}

}  // namespace anabranch::cuda_sim
