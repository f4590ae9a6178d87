// Kernels as wholes, the device side's functions, and the settings of a test.
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "tests/cuda_sim/block.h"
#include "tests/cuda_sim/guarded.h"

namespace anabranch::cuda_sim {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Options from_environment() {
  Options options;
  const std::string_view order = environment("AB_SIM_ORDER");
  if (order == "reverse") options.order = Order::kReverse;
  if (order == "random") options.order = Order::kRandom;
  const std::string_view streams = environment("AB_SIM_STREAMS");
  if (streams == "lazy") options.streams = Streams::kLazy;
  if (streams == "others_first") options.streams = Streams::kOthersFirst;
  if (streams == "random") options.streams = Streams::kRandom;
  if (streams == "delayed") options.streams = Streams::kDelayed;
  const std::string_view seed = environment("AB_SIM_SEED");
  if (!seed.empty()) options.seed = std::strtoull(seed.data(), nullptr, 10);
  return options;
}

// The numbers of a grid's blocks in the order in which they run.
std::vector<size_t> block_order(size_t blocks) {
  std::vector<size_t> order(blocks);
  const bool reverse = options().order == Order::kReverse;
  for (size_t i = 0; i < blocks; ++i) order[i] = reverse ? blocks - 1 - i : i;
  if (options().order == Order::kRandom) {
    Random random{options().seed};
    for (size_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  return order;
}

// Sets options for as long as it lives.
class Kept {
 public:
  Kept() = default;

  ~Kept() { options() = before_; }

  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  Options before_ = options();
};

}  // namespace

std::string run_kernel(const KernelCall& call) {
  catch_bad_accesses();
  gridDim = call.grid;
  blockDim = call.block;
  try {
    Block block(call);
    for (const size_t number : block_order(call.blocks())) block.run(number);
  } catch (const KernelFault& fault) {
    return join("kernel ", call.name, ", block (", blockIdx.x, ",", blockIdx.y, ",", blockIdx.z,
                "): ", fault.what());
  }
  Counters& count = counters();
  ++count.kernels;
  count.blocks += call.blocks();
  count.threads += call.blocks() * call.threads();
  return "";
}

std::string kernel_name(const std::string& pretty_function) {
  constexpr std::string_view kBefore = "kKernel = ", kAfter = "; P = ";
  const size_t begin = pretty_function.find(kBefore);
  if (begin == std::string::npos) return pretty_function;
  const size_t from = begin + kBefore.size(), end = pretty_function.find(kAfter, from);
  return pretty_function.substr(from, end == std::string::npos ? end : end - from);
}

Options& options() {
  static Options options = from_environment();
  return options;
}

Counters& counters() {
  static thread_local Counters counters;
  return counters;
}

void for_each_order(int random, const std::function<void(const std::string& name)>& body) {
  const Kept kept;
  options().order = Order::kForward;
  body("forward order");
  options().order = Order::kReverse;
  body("reverse order");
  options().order = Order::kRandom;
  for (int i = 0; i < random; ++i) {
    ++options().seed;
    body("random order, seed " + std::to_string(options().seed));
  }
}

void for_each_schedule(int random, const std::function<void(const std::string& name)>& body) {
  const Kept kept;
  options().streams = Streams::kEager;
  body("eager");
  options().streams = Streams::kLazy;
  body("lazy");
  options().streams = Streams::kOthersFirst;
  body("others first");
  options().streams = Streams::kRandom;
  for (int i = 0; i < random; ++i) {
    ++options().seed;
    body("random streams, seed " + std::to_string(options().seed));
  }
  options().streams = Streams::kDelayed;
  for (int i = 0; i < random; ++i) {
    ++options().seed;
    body("random delays, seed " + std::to_string(options().seed));
  }
}

void fault(const std::string& what) { throw KernelFault(what); }

void block_barrier(Site site) { Block::active()->barrier(site); }

int lane_id() { return Block::active()->lane(); }

void* dynamic_shared() { return Block::active()->shared(nullptr, 0); }

void* static_shared(const void* key, size_t size) { return Block::active()->shared(key, size); }

void warp_collective(const Collective& call) { Block::active()->collective(call); }

void before_atomic() { Block::active()->let_others_run(); }

void copy_async(void* to, const void* from, size_t bytes, size_t zeros) {
  Block::active()->copy_async(to, from, bytes, zeros);
}

void commit_async() { Block::active()->commit_async(); }

void wait_async(unsigned pending_batches) { Block::active()->wait_async(pending_batches); }

void check_aligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
  fault("an access of " + std::to_string(bytes) + " bytes is not aligned to as many");
}

}  // namespace anabranch::cuda_sim
