// What a test sees of the simulator: how it runs, and what it found.
//
// A simulated GPU thread is a fiber. The threads of a block run on the host thread that makes the
// kernel run, block after block; each runs until it waits at a barrier or for the other lanes of
// its warp. Nothing runs at the same time inside a kernel: the order is what a test varies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace anabranch::cuda_sim {

// In which order runnable threads, and blocks, are taken. A right kernel gives the same bits in
// every order; one that lacks a barrier usually does not.
enum class Order : uint8_t { kForward, kReverse, kRandom };

// When the work on streams runs. Each policy is an order that CUDA allows; a program with all its
// waits in place gives the same bits under each.
enum class Streams : uint8_t {
  kEager,        // at once
  kLazy,         // as late as can be: only what a synchronise or a wait asks for
  kOthersFirst,  // before what is asked for, all that other streams may run already
  kRandom,       // any stream that may run
  kDelayed       // at once, but for pieces that are held up until nothing else can run
};

// A piece of work, as it is put on a stream.
struct Piece {
  int device = 0;
  int stream = 0;       // of its device; a new one has the lowest number that is free
  uint64_t number = 0;  // on its stream
  bool waits = false;   // for another stream
  bool collective = false;
};

// The environment sets what every test begins with; see options().
struct Options {
  Order order = Order::kForward;      // AB_SIM_ORDER: forward, reverse or random
  Streams streams = Streams::kEager;  // AB_SIM_STREAMS: eager, lazy, others_first, random, delayed
  uint64_t seed = 1;                  // AB_SIM_SEED: of all that is random
  int devices = 8;
  size_t shared_bytes = size_t{163} << 10U;  // most of a block: what sm_80 allows
  size_t device_bytes = size_t{2} << 30U;    // memory of a device
  // Which pieces kDelayed holds up; empty: some at random, more or fewer by the seed.
  std::function<bool(const Piece&)> delays = {};
  // Which waits of a stream for another are left out, as if forgotten; empty: none.
  std::function<bool(const Piece&)> forgets = {};
};

// Of the whole process, as a driver is; change it while no kernel runs.
Options& options();

// The message of the fault that stopped the current device, empty if none did; the device works
// again afterwards. Until then every call gives cudaErrorLaunchFailure, as on a GPU.
std::string take_fault();

// What ran on this host thread.
struct Counters {
  uint64_t kernels = 0, blocks = 0, threads = 0;
};

Counters& counters();

// From now on NCCL's communicators of this device say that the network has failed, and nothing they
// have under way gets done.
void break_network(int device);

// The same, but they say nothing: what they have under way never ends.
void hang_network(int device);

// Whether ncclCommAbort() hangs. False lets those go that do.
void hang_aborts(bool hang);

// Device memory of the current device that is not freed.
[[nodiscard]] size_t allocated_bytes();

// Memory of the host from which devices copy by themselves, of the whole process.
[[nodiscard]] size_t pinned_bytes();

// Begins or ends to watch ranges (core/base/range.h); returns those since it was last asked: a name
// where one began, "end" where it ended.
std::vector<std::string> watch_ranges(bool on);

// Runs `body` in the forward and the reverse order and in `random` random ones; it is given the
// order's name for its messages.
void for_each_order(int random, const std::function<void(const std::string& name)>& body);

// The same over the stream policies, with `random` seeds of kRandom and of kDelayed.
void for_each_schedule(int random, const std::function<void(const std::string& name)>& body);

}  // namespace anabranch::cuda_sim
