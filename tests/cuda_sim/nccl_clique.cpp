#include "tests/cuda_sim/nccl_clique.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/tensor/bf16.h"

namespace anabranch::cuda_sim {
namespace {

size_t width_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

const char* name_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return "uint8";
    case ncclBfloat16:
      return "bfloat16";
    case ncclInt32:
      return "int32";
    case ncclInt64:
      return "int64";
    case ncclFloat32:
      return "float32";
    case ncclFloat64:
      return "float64";
  }
  return "?";
}

const char* name_of(Verb verb) {
  switch (verb) {
    case Verb::kAllReduce:
      return "all-reduce";
    case Verb::kReduce:
      return "reduce";
    case Verb::kBroadcast:
      return "broadcast";
    case Verb::kAllGather:
      return "all-gather";
    case Verb::kReduceScatter:
      return "reduce-scatter";
    case Verb::kSend:
      return "send";
    case Verb::kRecv:
      return "receive";
  }
  return "?";
}

using Bytes = std::vector<std::byte>;

// Of a number and a NaN the number, as on a GPU.
template <class T>
T greater(T a, T b) {
  return b > a || a != a ? b : a;
}

template <class T>
void add_in(Bytes& sum, const Bytes& part, ncclRedOp_t op) {
  for (size_t at = 0; at < sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, &sum[at], sizeof(T));
    std::memcpy(&b, &part[at], sizeof(T));
    if constexpr (std::is_same_v<T, Bf16>) {  // rounded at each rank, as in a ring
      const auto x = static_cast<float>(a), y = static_cast<float>(b);
      a = Bf16(op == ncclMax ? greater(x, y) : x + y);
    } else {
      a = op == ncclMax ? greater(a, b) : static_cast<T>(a + b);
    }
    std::memcpy(&sum[at], &a, sizeof(T));
  }
}

void add_in(Bytes& sum, const Bytes& part, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclUint8:
      return add_in<uint8_t>(sum, part, op);
    case ncclInt32:
      return add_in<int32_t>(sum, part, op);
    case ncclInt64:
      return add_in<int64_t>(sum, part, op);
    case ncclFloat32:
      return add_in<float>(sum, part, op);
    case ncclFloat64:
      return add_in<double>(sum, part, op);
    case ncclBfloat16:
      return add_in<Bf16>(sum, part, op);
  }
}

// What a rank reads and writes.
struct Ends {
  size_t in = 0, out = 0;  // bytes
};

Ends ends_of(const NcclCall& call, int rank, int size) {
  const size_t bytes = call.count * width_of(call.type), all = bytes * static_cast<size_t>(size);
  const size_t at_root = rank == call.peer ? bytes : 0;
  switch (call.verb) {
    case Verb::kAllReduce:
      return {bytes, bytes};
    case Verb::kReduce:
      return {bytes, at_root};
    case Verb::kBroadcast:
      return {at_root, bytes};
    case Verb::kAllGather:
      return {bytes, all};
    case Verb::kReduceScatter:
      return {all, bytes};
    case Verb::kSend:
      return {bytes, 0};
    case Verb::kRecv:
      return {0, bytes};
  }
  return {};
}

// Where input and output may share memory, the bytes from the larger's begin to the smaller's.
size_t place_in_larger(const NcclCall& call, int rank) {
  const bool parts = call.verb == Verb::kAllGather || call.verb == Verb::kReduceScatter;
  return parts ? static_cast<size_t>(rank) * call.count * width_of(call.type) : 0;
}

}  // namespace

std::string NcclCall::text() const {
  return join(name_of(verb), " of ", count, " ", name_of(type));
}

bool Clique::all_here() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.device >= 0; });
}

void Clique::launch(int rank, std::vector<NcclCall> calls, CUstream_st* stream) {
  NcclRank& mine = this->rank(rank);
  for (NcclCall& call : calls) {
    if (call.verb == Verb::kSend) {
      call.number = between_[{rank, call.peer}].called_sends++;
    } else if (call.verb == Verb::kRecv) {
      call.number = between_[{call.peer, rank}].called_receives++;
    } else {
      call.number = mine.called++;
    }
  }
  auto work = std::make_shared<Launch>(shared_from_this(), rank, std::move(calls), stream);
  mine.coming.push_back(work);
  ++mine.open;
  enqueue(stream, {.run = [&mine, self = shared_from_this()] { --mine.open; }, .joint = work});
}

void Clique::leave(int rank) {
  this->rank(rank).gone = true;
  this->rank(rank).coming.clear();
  const bool empty = std::all_of(ranks_.begin(), ranks_.end(),
                                 [](const NcclRank& r) { return r.gone || r.device < 0; });
  if (!empty) return;
  for (NcclRank& r : ranks_) r.collectives.clear();
  between_.clear();
}

void Clique::post(int rank, const Posted& posted) {
  NcclRank& mine = this->rank(rank);
  const NcclCall& call = *posted.call;
  if (call.verb == Verb::kSend) {
    Between& way = between_[{rank, call.peer}];
    way.sends.push_back(posted);
    ++way.sent;
  } else if (call.verb == Verb::kRecv) {
    Between& way = between_[{call.peer, rank}];
    way.receives.push_back(posted);
    ++way.received;
  } else {
    mine.collectives.push_back(posted);
    ++mine.posted;
  }
}

void Clique::meet() {
  if (broken_) return;
  while (std::none_of(ranks_.begin(), ranks_.end(),
                      [](const NcclRank& r) { return r.collectives.empty(); })) {
    std::vector<NcclCall*> calls;
    for (NcclRank& r : ranks_) calls.push_back(r.collectives.front().call);
    if (agree(calls)) do_collective(calls);
    for (NcclCall* call : calls) call->done = true;
    for (NcclRank& r : ranks_) r.collectives.pop_front();
  }
  for (auto& [ranks, way] : between_) {
    while (!way.sends.empty() && !way.receives.empty()) {
      NcclCall &send = *way.sends.front().call, &receive = *way.receives.front().call;
      do_message(ranks.first, ranks.second, send, receive);
      send.done = receive.done = true;
      way.sends.pop_front();
      way.receives.pop_front();
    }
  }
}

bool Clique::agree(const std::vector<NcclCall*>& calls) {
  for (int r = 0; r < size(); ++r) {
    const NcclCall &first = *calls[0], &other = *calls[static_cast<size_t>(r)];
    if (first.verb != other.verb || first.count != other.count || first.type != other.type ||
        first.op != other.op || first.peer != other.peer) {
      stop_all(join("NCCL: rank 0 calls ", first.text(), ", root ", first.peer, ", where rank ", r,
                    " calls ", other.text(), ", root ", other.peer));
      return false;
    }
    if (!check_memory(r, other)) return false;
  }
  return true;
}

bool Clique::check_memory(int r, const NcclCall& call) {
  const Ends ends = ends_of(call, r, size());
  const int device = rank(r).device;
  if ((ends.in > 0 && !is_on(device, call.in, ends.in)) ||
      (ends.out > 0 && !is_on(device, call.out, ends.out))) {
    stop_all(join("NCCL: ", call.text(), " of rank ", r, " leaves the memory of its device"));
    return false;
  }
  const auto *in = static_cast<const std::byte*>(call.in),
             *out = static_cast<const std::byte*>(call.out);
  const bool overlap = ends.in > 0 && ends.out > 0 && in < out + ends.out && out < in + ends.in;
  const std::byte *large = ends.in > ends.out ? in : out, *small = ends.in > ends.out ? out : in;
  if (overlap && large + place_in_larger(call, r) != small) {
    stop_all(join("NCCL: ", call.text(), " of rank ", r, ": its two ends overlap"));
    return false;
  }
  return true;
}

void Clique::do_collective(const std::vector<NcclCall*>& calls) {
  const NcclCall& call = *calls[0];
  const size_t bytes = call.count * width_of(call.type);
  std::vector<Bytes> ins;
  for (int r = 0; r < size(); ++r) {
    const auto* in = static_cast<const std::byte*>(calls[static_cast<size_t>(r)]->in);
    const size_t count = ends_of(call, r, size()).in;
    ins.emplace_back(in, in + count);
  }
  Bytes result;
  if (call.verb == Verb::kBroadcast) {
    result = ins[static_cast<size_t>(call.peer)];
  } else if (call.verb == Verb::kAllGather) {
    for (const Bytes& in : ins) result.insert(result.end(), in.begin(), in.end());
  } else {
    result = ins[0];
    for (size_t r = 1; r < ins.size(); ++r) add_in(result, ins[r], call.type, call.op);
  }
  for (int r = 0; r < size(); ++r) {
    const size_t count = ends_of(call, r, size()).out;
    const bool scatter = call.verb == Verb::kReduceScatter;
    const size_t from = scatter ? static_cast<size_t>(r) * bytes : 0;
    if (count > 0) std::memcpy(calls[static_cast<size_t>(r)]->out, result.data() + from, count);
  }
}

void Clique::do_message(int from, int to, NcclCall& send, NcclCall& receive) {
  if (send.count != receive.count || send.type != receive.type) {
    return stop_all(join("NCCL: rank ", from, " sends rank ", to, " a ", send.text(), ", but its ",
                         receive.text(), " waits"));
  }
  if (!check_memory(from, send) || !check_memory(to, receive)) return;
  std::memmove(receive.out, send.in, send.count * width_of(send.type));
}

void Clique::stop_all(const std::string& why) {
  for (const NcclRank& r : ranks_) stop_device(r.device, why);
}

std::vector<int> Clique::late_for(int mine, const NcclCall& call) {
  std::vector<int> late;
  if (call.between_two()) {
    const bool sends = call.verb == Verb::kSend;
    const Between& way = between_[sends ? std::pair(mine, call.peer) : std::pair(call.peer, mine)];
    if ((sends ? way.received : way.sent) <= call.number) late.push_back(call.peer);
    return late;
  }
  for (int r = 0; r < size(); ++r) {
    if (rank(r).posted <= call.number) late.push_back(r);
  }
  return late;
}

bool Launch::reach() {
  NcclRank& mine = clique_->rank(rank_);
  if (!reached_ && !mine.gone) {
    reached_ = true;
    std::erase_if(mine.coming, [this](const auto& launch) { return launch.get() == this; });
    for (NcclCall& call : calls_) clique_->post(rank_, {shared_from_this(), &call});
    clique_->meet();
  }
  return mine.gone || is_stopped(mine.device) ||
         std::all_of(calls_.begin(), calls_.end(), [](const NcclCall& c) { return c.done; });
}

CUstream_st* Launch::blocker() {
  for (const NcclCall& call : calls_) {
    if (call.done || clique_->broken_) continue;
    for (const int late : clique_->late_for(rank_, call)) {
      const auto& coming = clique_->rank(late).coming;
      if (!coming.empty()) return coming.front()->stream_;
    }
  }
  return nullptr;
}

}  // namespace anabranch::cuda_sim
