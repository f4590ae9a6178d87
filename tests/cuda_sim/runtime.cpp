// CUDA's runtime functions over the machine.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "tests/cuda_sim/guarded.h"
#include "tests/cuda_sim/machine.h"

using namespace anabranch::cuda_sim;  // NOLINT(google-build-using-namespace): the C functions of it

namespace {

constexpr int kVersion = 13000;  // of CUDA, which this stands for

cudaError_t allocate(void** block, size_t bytes, int device) {
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  const std::scoped_lock hold(machine().lock);
  SimDevice& owner = current_device();
  const bool full = device != kPinned && owner.allocated + bytes > options().device_bytes;
  void* made = full ? nullptr : allocate_guarded(bytes);
  if (made == nullptr) return note(cudaErrorMemoryAllocation);
  machine().allocations[static_cast<const char*>(made)] = {bytes, device};
  if (device != kPinned) owner.allocated += bytes;
  *block = made;
  return cudaSuccess;
}

cudaError_t release(void* block, bool pinned) {
  if (block == nullptr) return cudaSuccess;
  Turn turn = take_turn();
  run_all(turn);  // freeing waits for the device
  std::unique_lock hold(machine().lock);
  const auto found = machine().allocations.find(static_cast<const char*>(block));
  if (found == machine().allocations.end() || (found->second.device == kPinned) != pinned) {
    return reject(cudaErrorInvalidValue, "free of a pointer that was not allocated so");
  }
  const Allocation what = found->second;
  const bool intact = is_intact(block, what.size);
  if (!pinned) machine().devices[static_cast<size_t>(what.device)].allocated -= what.size;
  machine().allocations.erase(found);
  release_guarded(block, what.size);
  hold.unlock();
  if (intact) return cudaSuccess;
  return report_fault(
      anabranch::join("an allocation of ", what.size, " bytes was written outside its bounds"));
}

// Whether the ends of a copy are where its kind says, over the whole size.
cudaError_t check_copy(const void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const bool any = kind == cudaMemcpyDefault;
  const bool to_device = any ? is_on_device(to, 1)
                             : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = any ? is_on_device(from, 1)
                               : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device ? !is_on_device(to, bytes) : is_on_device(to, 1)) {
    return reject(cudaErrorInvalidValue, "copy: the destination does not fit its kind and size");
  }
  if (from_device ? !is_on_device(from, bytes) : is_on_device(from, 1)) {
    return reject(cudaErrorInvalidValue, "copy: the source does not fit its kind and size");
  }
  return cudaSuccess;
}

}  // namespace

// NOLINTBEGIN: CUDA's names.
cudaError_t cudaGetLastError() {
  const cudaError_t sticky = sticky_error();
  return sticky != cudaSuccess ? sticky : std::exchange(thread_state().last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() { return thread_state().last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaError of the simulator";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorLaunchFailure:
      return current_device().fault.c_str();
    default:
      return "see the simulator's own message";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = options().devices;
  return options().devices > 0 ? cudaSuccess : note(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= options().devices) return note(cudaErrorInvalidDevice);
  *properties = {"simulated GPU", {{'s', 'i', 'm'}}, options().device_bytes, 8, 0};
  properties->uuid.bytes[15] = static_cast<char>(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= options().devices) return note(cudaErrorInvalidDevice);
  if (attribute != cudaDevAttrMaxSharedMemoryPerBlockOptin) return note(cudaErrorInvalidValue);
  *value = static_cast<int>(options().shared_bytes);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const bool known = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value >= 0;
  if (!known || static_cast<size_t>(value) > options().shared_bytes) {
    return note(cudaErrorInvalidValue);
  }
  const std::scoped_lock hold(machine().lock);
  current_device().shared_bytes[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (device < 0 || device >= options().devices) return note(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = thread_state().device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= options().devices) return note(cudaErrorInvalidDevice);
  thread_state().device = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  Turn turn = take_turn();
  run_all(turn);
  return sticky_error();
}

cudaError_t cudaMalloc(void** block, size_t bytes) {
  return allocate(block, bytes, thread_state().device);
}

cudaError_t cudaFree(void* block) { return release(block, false); }

cudaError_t cudaMallocHost(void** block, size_t bytes) { return allocate(block, bytes, kPinned); }

cudaError_t cudaFreeHost(void* block) { return release(block, true); }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::scoped_lock hold(machine().lock);
  *total = options().device_bytes;
  *free = *total - current_device().allocated;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (const cudaError_t bad = check_copy(to, from, bytes, kind); bad != cudaSuccess) return bad;
  Turn turn = take_turn();
  if (!is_on_device(from, bytes) && !is_pinned(from, bytes)) {  // staged before the call returns
    const auto* first = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(first, first + bytes);
    return submit(turn, stream, {[=] { std::memcpy(to, staged->data(), bytes); }});
  }
  const cudaError_t error = submit(turn, stream, {[=] { std::memmove(to, from, bytes); }});
  const bool waits = !is_on_device(to, bytes) && !is_pinned(to, bytes);
  if (error != cudaSuccess || !waits) return error;
  run_until(turn, stream, stream->submitted);
  return sticky_error();
}

cudaError_t cudaMemsetAsync(void* block, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!is_on_device(block, bytes)) {
    return reject(cudaErrorInvalidValue, "memset of what is not a range of device memory");
  }
  Turn turn = take_turn();
  return submit(turn, stream, {[=] { std::memset(block, value, bytes); }});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (flags != cudaStreamNonBlocking) {
    return reject(cudaErrorNotSupported, "a stream that waits for the default stream");
  }
  *stream = new CUstream_st;
  (*stream)->device = thread_state().device;
  const std::scoped_lock hold(machine().lock);
  auto& streams = current_device().streams;
  const auto is_taken = [&](int number) {
    return std::any_of(streams.begin(), streams.end(),
                       [=](const auto* other) { return other->number == number; });
  };
  while (is_taken((*stream)->number)) ++(*stream)->number;
  streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Turn turn = take_turn();
  run_until(turn, stream, stream->submitted);
  const std::scoped_lock hold(machine().lock);
  SimDevice& device = machine().devices[static_cast<size_t>(stream->device)];
  std::erase(device.streams, stream);
  device.retired.emplace_back(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Turn turn = take_turn();
  run_until(turn, stream, stream->submitted);
  return sticky_error();
}

// Each query lets one piece of work run, so that polling comes to an end.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Turn turn = take_turn();
  if (stream->completed < stream->submitted) run_one(stream);
  return stream->completed == stream->submitted ? sticky_error() : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  Turn turn = take_turn();
  const CUevent_st::State& now = *event->state;  // a later record does not matter
  if (now.stream == nullptr || now.stream == stream) return cudaSuccess;
  StreamWork work{.other = now.stream, .ticket = now.ticket};
  const auto& forgets = options().forgets;
  if (stream != nullptr && forgets && forgets(stream->piece(work))) work.other = nullptr;
  return submit(turn, stream, std::move(work));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->state->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Turn turn = take_turn();
  if (stream != nullptr) {
    event->state->stream = stream;
    event->state->ticket = stream->submitted + 1;
  }
  return submit(turn, stream,
                {[state = event->state] { state->time = std::chrono::steady_clock::now(); }});
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Turn turn = take_turn();
  const CUevent_st::State& state = *event->state;
  if (state.stream != nullptr) run_until(turn, state.stream, state.ticket);
  return sticky_error();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Turn turn = take_turn();
  const CUevent_st::State& state = *event->state;
  if (!state.done()) run_one(state.stream);
  return state.done() ? sticky_error() : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Turn turn = take_turn();
  const CUevent_st::State &from = *begin->state, &to = *end->state;
  const bool recorded = from.stream != nullptr && to.stream != nullptr;
  if (!recorded || !from.timed || !to.timed) return note(cudaErrorInvalidResourceHandle);
  if (!from.done() || !to.done()) return note(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(to.time - from.time).count();
  return cudaSuccess;
}

// NOLINTEND
