// NCCL's functions over the machine: ranks are host threads of one process, each with a device.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <nccl.h>

#include "core/base/error.h"
#include "tests/cuda_sim/nccl_clique.h"
#include "tests/cuda_sim/sim.h"

using namespace anabranch::cuda_sim;  // NOLINT(google-build-using-namespace): the C functions of it

// A communicator as one rank has it.
struct ncclComm {
  struct Waiting {
    std::vector<NcclCall> calls;
    cudaStream_t stream;
  };

  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool finalizing = false;
  int polls = 0;                  // since the last group
  std::vector<Waiting> launches;  // not on their streams yet

  [[nodiscard]] NcclRank& mine() const { return clique->rank(rank); }
};

namespace {

// All communicators, and the cliques that are not yet complete, by their id; whoever has the turn.
struct Registry {
  std::vector<ncclComm*> comms;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  uint64_t ids = 0;
  bool aborts_hang = false;
};

Registry& registry() {
  static Registry registry;
  return registry;
}

struct Grouped {
  ncclComm_t comm;
  cudaStream_t stream;
  NcclCall call;
};

// What this thread has called since it began a group.
struct ThreadGroup {
  int depth = 0;
  std::vector<Grouped> calls;
};

ThreadGroup& thread_group() {
  static thread_local ThreadGroup group;
  return group;
}

ncclResult_t refuse(ncclResult_t error, const std::string& why) {
  reject(cudaSuccess, "NCCL: " + why);
  return error;
}

// As NCCL does without blocking: they come to their streams later, while the caller polls.
ncclResult_t end_group() {
  const Turn turn = take_turn();
  std::vector<Grouped> calls;
  calls.swap(thread_group().calls);
  for (Grouped& g : calls) {
    const auto same = [&](const auto& waiting) { return waiting.stream == g.stream; };
    auto& launches = g.comm->launches;
    auto found = std::find_if(launches.begin(), launches.end(), same);
    if (found == launches.end()) found = launches.insert(found, {{}, g.stream});
    found->calls.push_back(g.call);
    g.comm->polls = 0;
  }
  return calls.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t check(ncclComm_t comm, cudaStream_t stream, const NcclCall& call) {
  const Turn turn = take_turn();
  if (comm == nullptr) return refuse(ncclInvalidArgument, call.text() + " without communicator");
  if (!comm->launches.empty() || comm->finalizing || !comm->clique->all_here()) {
    return refuse(ncclInvalidUsage, call.text() + " while the communicator is in progress");
  }
  if (stream == nullptr || stream->device != comm->mine().device) {
    return refuse(ncclInvalidUsage, call.text() + " on a stream of another device, or of none");
  }
  if (call.peer < 0 || call.peer >= comm->clique->size()) {
    return refuse(ncclInvalidArgument, call.text() + " with a rank that there is not");
  }
  return ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const NcclCall& call) {
  if (const ncclResult_t bad = check(comm, stream, call); bad != ncclSuccess) return bad;
  thread_group().calls.push_back({comm, stream, call});
  return thread_group().depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t forget(ncclComm_t comm) {
  std::erase(registry().comms, comm);
  comm->clique->leave(comm->rank);
  delete comm;
  return ncclSuccess;
}

// What a device's communicators have under way does not get done, and they say `error`.
void break_up(int device, ncclResult_t error) {
  const Turn turn = take_turn();
  for (const ncclComm* comm : registry().comms) {
    if (comm->mine().device != device) continue;
    comm->mine().error = error;
    comm->clique->break_up();
  }
}

}  // namespace

namespace anabranch::cuda_sim {

void break_network(int device) { break_up(device, ncclRemoteError); }

void hang_network(int device) { break_up(device, ncclSuccess); }

void hang_aborts(bool hang) {
  const Turn turn = take_turn();
  registry().aborts_hang = hang;
  machine().moved.notify_all();
}

}  // namespace anabranch::cuda_sim

// NOLINTBEGIN: NCCL's names.
ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "see the simulator's own message";
  }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return "none"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Turn turn = take_turn();
  *id = {};
  const std::string text = "clique " + std::to_string(registry().ids++);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return refuse(ncclInvalidUsage, "communicators that block");
  const Turn turn = take_turn();
  std::shared_ptr<Clique>& clique = registry().cliques[id.internal];
  if (!clique) clique = std::make_shared<Clique>(ranks);
  if (clique->size() != ranks || rank < 0 || rank >= ranks || clique->rank(rank).device >= 0) {
    return refuse(ncclInvalidArgument, "ranks that do not agree on what they are");
  }
  for (int r = 0; r < ranks; ++r) {
    if (clique->rank(r).device == thread_state().device) {
      return refuse(ncclInvalidUsage, "two ranks on one device");
    }
  }
  clique->rank(rank).device = thread_state().device;
  *comm = new ncclComm{.clique = clique, .rank = rank, .launches = {}};
  registry().comms.push_back(*comm);
  if (clique->all_here()) registry().cliques.erase(id.internal);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Turn turn = take_turn();
  *error = comm->mine().error;
  if (*error != ncclSuccess) return ncclSuccess;
  if (!comm->clique->all_here() || (comm->finalizing && comm->mine().open > 0)) {
    *error = ncclInProgress;
  } else if (!comm->launches.empty() && comm->polls++ == 0) {
    *error = ncclInProgress;
  } else {
    std::vector<ncclComm::Waiting> launches;
    launches.swap(comm->launches);
    for (auto& launch : launches) {
      comm->clique->launch(comm->rank, std::move(launch.calls), launch.stream);
    }
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Turn turn = take_turn();
  comm->finalizing = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Turn turn = take_turn();
  if (comm->mine().open > 0) return refuse(ncclInvalidUsage, "destroyed with work under way");
  return forget(comm);
}

// Its work ends undone; what the others have under way with it never does.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Turn turn = take_turn();
  while (registry().aborts_hang) machine().moved.wait(turn);
  if (comm->mine().open > 0 || !comm->launches.empty()) comm->clique->break_up();
  forget(comm);
  machine().moved.notify_all();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++thread_group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return --thread_group().depth == 0 ? end_group() : ncclSuccess; }

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Verb::kAllReduce, in, out, count, type, op});
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Verb::kReduce, in, out, count, type, op, root});
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Verb::kBroadcast, in, out, count, type, ncclSum, root});
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Verb::kAllGather, in, out, count, type});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Verb::kReduceScatter, in, out, count, type, op});
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, {Verb::kSend, in, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, {Verb::kRecv, nullptr, out, count, type, ncclSum, peer});
}

// NOLINTEND
