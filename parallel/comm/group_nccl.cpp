#include "parallel/comm/group_nccl.h"

#include <utility>

#include <nccl.h>

#include "core/base/error.h"
#include "parallel/comm/nccl_queue.h"

namespace anabranch::cuda {
namespace {

ncclDataType_t type_of(const Tensor& t) {
  switch (t.dtype()) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
      return ncclUint8;
  }
  AB_FAIL("NCCL has no ", name_of(t.dtype()));
}

size_t count_of(const Tensor& t) { return static_cast<size_t>(t.count()); }

// Whether all parts are as large as the first.
bool are_equal(const std::vector<int64_t>& begins) {
  for (size_t r = 1; r + 1 < begins.size(); ++r) {
    if (begins[r + 1] - begins[r] != begins[1]) return false;
  }
  return true;
}

// The calls of NCCL that make a collective.
struct Calls {
  const Collective& c;
  ncclComm* comm;
  CUstream_st* stream;
  Tensor in = c.in, out = c.out;
  ncclDataType_t type = type_of(c.out);

  void all() {
    switch (c.kind) {
      case CollectiveKind::kAllReduceSum:
        return all_reduce(ncclSum);
      case CollectiveKind::kAllReduceMax:
        return all_reduce(ncclMax);
      case CollectiveKind::kAllGather:
        return are_equal(c.begins) ? all_gather() : all_gather_parts();
      case CollectiveKind::kReduceScatterSum:
        return are_equal(c.begins) ? reduce_scatter() : reduce_parts();
      case CollectiveKind::kBroadcast:
        return check_nccl(
            ncclBroadcast(in.landing(), out.landing(), count_of(out), type, c.root, comm, stream),
            "ncclBroadcast");
      case CollectiveKind::kAllToAll:
        return all_to_all();
      case CollectiveKind::kBarrier:
        return;  // has no tensors: the host's
    }
  }

  void all_reduce(ncclRedOp_t op) {
    check_nccl(ncclAllReduce(in.landing(), out.landing(), count_of(out), type, op, comm, stream),
               "ncclAllReduce");
  }

  void all_gather() {
    check_nccl(ncclAllGather(in.landing(), out.landing(), count_of(in), type, comm, stream),
               "ncclAllGather");
  }

  void reduce_scatter() {
    check_nccl(
        ncclReduceScatter(in.landing(), out.landing(), count_of(out), type, ncclSum, comm, stream),
        "ncclReduceScatter");
  }

  // Calls f(rank, where its part of `whole` is, elements) for each part that has any.
  template <class F>
  void for_parts(Tensor& whole, const F& f) const {
    for (size_t r = 0; r + 1 < c.begins.size(); ++r) {
      const int64_t count = c.begins[r + 1] - c.begins[r];
      std::byte* at = whole.landing() + c.begins[r] * size_of(whole.dtype());
      if (count > 0) f(static_cast<int>(r), at, static_cast<size_t>(count));
    }
  }

  // Parts of any size are always in place.
  void all_gather_parts() {
    for_parts(out, [&](int owner, std::byte* at, size_t count) {
      check_nccl(ncclBroadcast(at, at, count, type, owner, comm, stream), "ncclBroadcast");
    });
  }

  void reduce_parts() {
    for_parts(in, [&](int owner, std::byte* at, size_t count) {
      check_nccl(ncclReduce(at, at, count, type, ncclSum, owner, comm, stream), "ncclReduce");
    });
  }

  void all_to_all() {
    const int64_t row = row_bytes(out), width = row / size_of(out.dtype());
    for (const RowSegment& s : c.sends) {
      if (s.rows == 0) continue;
      check_nccl(ncclSend(in.landing() + s.first * row, static_cast<size_t>(s.rows * width), type,
                          s.rank, comm, stream),
                 "ncclSend");
    }
    for (const RowSegment& s : c.receives) {
      if (s.rows == 0) continue;
      check_nccl(ncclRecv(out.landing() + s.first * row, static_cast<size_t>(s.rows * width), type,
                          s.rank, comm, stream),
                 "ncclRecv");
    }
  }
};

class NcclGroup final : public Group {
 public:
  // `comm` is null for a rank alone.
  NcclGroup(std::unique_ptr<Group> host, std::shared_ptr<NcclQueue> queue,
            std::shared_ptr<NcclComm> comm)
      : Group(host->rank(), host->size(), thread_of(*host)),
        host_(std::move(host)),
        queue_(std::move(queue)),
        comm_(std::move(comm)) {}

  static std::unique_ptr<Group> make(std::unique_ptr<Group> host, int device) {
    auto queue = std::make_shared<NcclQueue>(thread_of(*host), device);
    auto comm = queue->connect(*host);
    return std::make_unique<NcclGroup>(std::move(host), std::move(queue), std::move(comm));
  }

  ~NcclGroup() override {
    leave();
    queue_->drain();
  }

  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  void abort(const std::string& reason) override { host_->abort(reason); }

  std::unique_ptr<Group> split(int color, int key) override {
    auto host = host_->split(color, key);
    auto comm = host->size() > 1 ? communicator_of(*host) : nullptr;
    return std::make_unique<NcclGroup>(std::move(host), queue_, std::move(comm));
  }

 private:
  // This group's own if `part` has the same ranks in the same order: each takes memory of the GPU.
  std::shared_ptr<NcclComm> communicator_of(Group& part) {
    if (part.size() == size()) {
      const Tensor moved = Tensor::of<int64_t>({1}, {part.rank() == rank() ? 0 : 1});
      part.all_reduce_max(moved).wait();
      if (moved.data<int64_t>()[0] == 0) return comm_;
    }
    return queue_->connect(part);
  }

  Work submit(Collective c) override {
    const Device device = c.out.device();
    AB_CHECK(c.in.device() == device, c.text(), " between the host and a GPU");
    if (device.is_cpu()) return start_on(*host_, std::move(c));
    AB_CHECK(device == queue_->device(), c.text(), " of tensors of GPU ", device.index,
             " by a rank of GPU ", queue_->device().index);
    // All ranks have as little: nothing to do. What is all to all may differ.
    const bool nothing = c.in.count() == 0 && c.out.count() == 0;
    if (nothing && c.kind != CollectiveKind::kAllToAll) return {};
    return queue_->start(c, *comm_, [&c](ncclComm* comm, CUstream_st* stream) {
      Calls{.c = c, .comm = comm, .stream = stream}.all();
    });
  }

  void run(const Collective& c) override {
    AB_FAIL(c.text(), " was not given to the host's group");
  }

  std::unique_ptr<Group> host_;
  std::shared_ptr<NcclQueue> queue_;
  std::shared_ptr<NcclComm> comm_;
};

}  // namespace

std::unique_ptr<Group> nccl_group(std::unique_ptr<Group> host, int device) {
  return NcclGroup::make(std::move(host), device);
}

}  // namespace anabranch::cuda
