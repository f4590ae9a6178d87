#include "parallel/comm/nccl_comm.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include <nccl.h>

#include "core/base/error.h"
#include "parallel/comm/patience.h"

namespace anabranch::cuda {
namespace {

Fault fault_of(ncclResult_t result) {
  const bool peer = result == ncclRemoteError || result == ncclSystemError;
  return peer ? Fault::kPeer : Fault::kInternal;
}

Error nccl_error(ncclResult_t result, const std::string& what) {
  return {fault_of(result), join("[nccl] ", what, " failed: ", ncclGetErrorString(result), " (",
                                 ncclGetLastError(nullptr), ")")};
}

}  // namespace

void check_nccl(int result, const std::string& what) {
  const auto code = static_cast<ncclResult_t>(result);
  if (code != ncclSuccess && code != ncclInProgress) throw nccl_error(code, what);
}

std::string nccl_version() {
  int version = 0;
  check_nccl(ncclGetVersion(&version), "ncclGetVersion");
  return join(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

Tensor NcclComm::new_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const auto* bytes = reinterpret_cast<const uint8_t*>(id.internal);
  return Tensor::of<uint8_t>({NCCL_UNIQUE_ID_BYTES}, {bytes, bytes + NCCL_UNIQUE_ID_BYTES});
}

NcclComm::NcclComm(std::shared_ptr<CommThread> thread, const Tensor& id, int rank, int size)
    : thread_(std::move(thread)) {
  ncclUniqueId name;
  std::copy_n(id.raw(), NCCL_UNIQUE_ID_BYTES, reinterpret_cast<std::byte*>(name.internal));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const std::string what = join("the start of a communicator of ", size, " ranks");
  const ncclResult_t made = ncclCommInitRankConfig(&comm_, size, name, rank, &config);
  try {
    check_nccl(made, what);
    await(what);
  } catch (...) {
    cut_off();
    throw;
  }
}

NcclComm::~NcclComm() {
  try {
    finish();
  } catch (const Error&) {
    cut_off();  // the rank has failed, or a peer has
  }
}

void NcclComm::finish() {
  {
    const std::scoped_lock hold(lock_);
    if (comm_ == nullptr) return;
    check_nccl(ncclCommFinalize(comm_), "ncclCommFinalize");
  }
  await("the end of a communicator");
  const std::scoped_lock hold(lock_);
  if (comm_ != nullptr) ncclCommDestroy(std::exchange(comm_, nullptr));
}

void NcclComm::run(const std::string& what, const std::function<void(ncclComm*)>& calls) {
  {
    const std::scoped_lock hold(lock_);
    if (comm_ == nullptr) thread_->check();
    AB_CHECK(comm_ != nullptr, what, " on a communicator that was aborted");
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    std::exception_ptr refused;
    try {
      calls(comm_);
    } catch (...) {
      refused = std::current_exception();
    }
    const ncclResult_t begun = ncclGroupEnd();
    if (refused) std::rethrow_exception(refused);
    check_nccl(begun, what);
  }
  await(what);
}

void NcclComm::await(const std::string& what) {
  using namespace std::chrono_literals;
  Patience patience;
  const double deadline = thread_->deadline();
  for (int polls = 0;; ++polls) {
    ncclResult_t state = ncclSuccess;
    {
      const std::scoped_lock hold(lock_);
      if (comm_ == nullptr) thread_->check();
      AB_CHECK(comm_ != nullptr, what, " on a communicator that was aborted");
      check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    }
    if (state == ncclSuccess) return;
    if (state != ncclInProgress) throw nccl_error(state, join(what, " on ", thread_->who()));
    thread_->check();
    if (deadline > 0 && patience.tick() >= deadline) {
      throw Error(Fault::kPeer, join(what, " on ", thread_->who(), " waited ", deadline,
                                     " s for NCCL: a rank is hung, or the network"));
    }
    // A launch takes microseconds; the start of a communicator, which waits for all ranks, seconds.
    if (polls < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(100us);
    }
  }
}

std::string NcclComm::error() {
  const std::scoped_lock hold(lock_);
  if (comm_ == nullptr) return "";
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) state = asked;
  return state == ncclSuccess || state == ncclInProgress ? "" : nccl_error(state, "NCCL").what();
}

bool NcclComm::cut_off(Clock::time_point until) {
  std::unique_lock hold(lock_);
  ncclComm* const comm = std::exchange(comm_, nullptr);
  hold.unlock();
  if (comm == nullptr) return true;
  std::packaged_task<void()> abort([comm] { ncclCommAbort(comm); });
  const std::future<void> done = abort.get_future();
  std::thread(std::move(abort)).detach();
  return done.wait_until(until) == std::future_status::ready;
}

}  // namespace anabranch::cuda
