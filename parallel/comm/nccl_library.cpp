// NCCL's functions, of the library that is installed where the program runs.
//
// It is looked for when ranks with GPUs first form a group: one rank alone needs none. Each
// function here hands over to the library's of the same name, so that whoever calls NCCL does as if
// it were linked; the simulator (tests/cuda_sim) brings functions of its own.
#include <dlfcn.h>
#include <string>

#include <nccl.h>

#include "core/base/error.h"

namespace anabranch::cuda {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

class Library {
 public:
  Library() : opened_(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) {
    if (opened_ != nullptr) return;
    throw config_error(
        "[nccl] several ranks with GPUs speak by NCCL, which cannot be loaded: ", dlerror(), ". ",
        kLibrary, " was looked for in LD_LIBRARY_PATH and the system's folders: install libnccl2, ",
        "or NVIDIA's nvidia-nccl-cu13 and add its lib folder to LD_LIBRARY_PATH, or run one rank");
  }

  // The function `name`, of the type of `F`.
  template <class F>
  [[nodiscard]] F* find(const char* name) const {
    void* const found = dlsym(opened_, name);
    if (found != nullptr) return reinterpret_cast<F*>(found);
    throw config_error("[nccl] the installed ", kLibrary, " has no ", name, ": it is older than ",
                       NCCL_MAJOR, ".", NCCL_MINOR, ", with which this program was built");
  }

 private:
  void* opened_;  // as long as the process
};

struct Functions {
  Library library;
  decltype(ncclGetVersion)* version = library.find<decltype(ncclGetVersion)>("ncclGetVersion");
  decltype(ncclGetErrorString)* error_string =
      library.find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  decltype(ncclGetLastError)* last_error =
      library.find<decltype(ncclGetLastError)>("ncclGetLastError");
  decltype(ncclGetUniqueId)* unique_id = library.find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(ncclCommInitRankConfig)* init =
      library.find<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  decltype(ncclCommGetAsyncError)* async_error =
      library.find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(ncclCommFinalize)* finalize =
      library.find<decltype(ncclCommFinalize)>("ncclCommFinalize");
  decltype(ncclCommDestroy)* destroy = library.find<decltype(ncclCommDestroy)>("ncclCommDestroy");
  decltype(ncclCommAbort)* abort = library.find<decltype(ncclCommAbort)>("ncclCommAbort");
  decltype(ncclGroupStart)* group_start = library.find<decltype(ncclGroupStart)>("ncclGroupStart");
  decltype(ncclGroupEnd)* group_end = library.find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  decltype(ncclAllReduce)* all_reduce = library.find<decltype(ncclAllReduce)>("ncclAllReduce");
  decltype(ncclReduce)* reduce = library.find<decltype(ncclReduce)>("ncclReduce");
  decltype(ncclBroadcast)* broadcast = library.find<decltype(ncclBroadcast)>("ncclBroadcast");
  decltype(ncclAllGather)* all_gather = library.find<decltype(ncclAllGather)>("ncclAllGather");
  decltype(ncclReduceScatter)* reduce_scatter =
      library.find<decltype(ncclReduceScatter)>("ncclReduceScatter");
  decltype(ncclSend)* send = library.find<decltype(ncclSend)>("ncclSend");
  decltype(ncclRecv)* receive = library.find<decltype(ncclRecv)>("ncclRecv");
};

// Throws Error if the library is not there or lacks one.
const Functions& library() {
  static const Functions functions;
  return functions;
}

}  // namespace
}  // namespace anabranch::cuda

using anabranch::cuda::library;

// NOLINTBEGIN: NCCL's names.
ncclResult_t ncclGetVersion(int* version) { return library().version(version); }

const char* ncclGetErrorString(ncclResult_t result) { return library().error_string(result); }

const char* ncclGetLastError(ncclComm_t comm) { return library().last_error(comm); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return library().unique_id(id); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return library().init(comm, ranks, id, rank, config);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return library().async_error(comm, error);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return library().finalize(comm); }

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return library().destroy(comm); }

ncclResult_t ncclCommAbort(ncclComm_t comm) { return library().abort(comm); }

ncclResult_t ncclGroupStart() { return library().group_start(); }

ncclResult_t ncclGroupEnd() { return library().group_end(); }

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return library().all_reduce(in, out, count, type, op, comm, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return library().reduce(in, out, count, type, op, root, comm, stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return library().broadcast(in, out, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return library().all_gather(in, out, count, type, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return library().reduce_scatter(in, out, count, type, op, comm, stream);
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return library().send(in, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return library().receive(out, count, type, peer, comm, stream);
}

// NOLINTEND
