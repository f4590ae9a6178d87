// How much of a gradient reduction hides behind backward: the layers of a GPT-2, their backward
// replaced by plain arithmetic of a set length, their gradients reduced for real.
//
//   mpirun -n 2 overlap_bench [--layers 12] [--layer-mb 28.3] [--embedding-mb 157] [--bucket-mb 25]
//                             [--backward-ms 6000] [--steps 3] [--bf16] [--json]
//
// Sizes are of float32 gradients. The embedding is tied: its gradient is ready last.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/mpi_world.h"
#include "parallel/grad_reducer.h"

namespace anabranch {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Options {
  std::map<std::string, double> number{{"--layers", 12},        {"--layer-mb", 28.3},
                                       {"--embedding-mb", 157}, {"--bucket-mb", 25},
                                       {"--backward-ms", 6000}, {"--steps", 3}};
  bool bf16 = false, json = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--bf16") {
      options.bf16 = true;
    } else if (arg == "--json") {
      options.json = true;
    } else if (options.number.contains(arg) && i + 1 < argc) {
      options.number[arg] = std::stod(argv[++i]);
    } else {
      throw usage_error("unknown argument ", arg);
    }
  }
  return options;
}

// A piece of arithmetic; returns what keeps the compiler from dropping it.
float arithmetic(int64_t rounds) {
  float x = 1, y = 2;
  for (int64_t i = 0; i < rounds; ++i) {
    x = x * 0.999F + y;
    y = y * 0.5F + x * 1e-3F;
  }
  return x + y;
}

double seconds_per_round() {
  constexpr int64_t kRounds = 20'000'000;
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    const volatile float sink = arithmetic(kRounds);
    static_cast<void>(sink);
    best = std::min(best, since(begin));
  }
  return best / kRounds;
}

struct Figures {
  double step, communication, waited;
};

double median(std::vector<Figures> all, double Figures::*field) {
  std::sort(all.begin(), all.end(),
            [&](const Figures& a, const Figures& b) { return a.*field < b.*field; });
  return all[all.size() / 2].*field;
}

std::vector<Figures> measure(Group& world, const Options& options) {
  const auto layers = static_cast<int>(options.number.at("--layers"));
  const auto elements = [](double mb) { return static_cast<int64_t>(mb * 1e6 / 4); };
  std::vector<Param> params;
  params.emplace_back("embedding", Shape{elements(options.number.at("--embedding-mb"))},
                      Init::constant(0));
  for (int i = 0; i < layers; ++i) {
    params.emplace_back(join("layer", i), Shape{elements(options.number.at("--layer-mb"))},
                        Init::constant(0));
  }
  std::vector<Param*> pointers;
  for (Param& w : params) pointers.push_back(&w);
  const Mesh mesh(world, mesh_shape(world.size(), 1, 1));
  const auto pool = std::make_shared<Pool>();
  FlatStore store(
      pointers,
      {.bucket_bytes = static_cast<int64_t>(options.number.at("--bucket-mb") * (1 << 20)),
       .all_ranks = world.size(),
       .data_ranks = world.size()},
      pool);
  GradReducer reducer(store, mesh, options.bf16 ? DType::kBF16 : DType::kF32);
  const auto rounds = static_cast<int64_t>(options.number.at("--backward-ms") * 1e-3 / layers /
                                           seconds_per_round());
  std::vector<Figures> all;
  for (int step = 0; step <= static_cast<int>(options.number.at("--steps")); ++step) {
    world.barrier();
    const auto begin = Clock::now();
    reducer.arm();
    for (auto w = pointers.rbegin(); w != pointers.rend(); ++w) {
      const volatile float sink = *w == pointers.front() ? 0 : arithmetic(rounds);
      static_cast<void>(sink);
      (*w)->fresh = false;
      reducer.ready(**w);
    }
    reducer.finish();
    const Figures figures{since(begin), reducer.times().seconds, reducer.times().waited};
    if (step > 0) all.push_back(figures);  // the first touches fresh memory
  }
  return all;
}

void print(const std::vector<Figures>& all, const Options& options, int ranks) {
  const double step = median(all, &Figures::step), waited = median(all, &Figures::waited);
  const double communication = median(all, &Figures::communication);
  const double hidden = communication > 0 ? 1 - waited / communication : 1;
  if (options.json) {
    std::cout << "{\"ranks\": " << ranks << ", \"wire\": \"" << (options.bf16 ? "bf16" : "fp32")
              << "\", \"step_seconds\": " << step
              << ", \"communication_seconds\": " << communication
              << ", \"waited_seconds\": " << waited << ", \"hidden\": " << hidden << "}\n";
    return;
  }
  std::cout << ranks << " ranks, " << (options.bf16 ? "bf16" : "fp32") << " on the wire: step "
            << step << " s, communication " << communication << " s, waited for " << waited
            << " s, hidden " << 100 * hidden << "%\n";
}

}  // namespace
}  // namespace anabranch

int main(int argc, char** argv) {
  using namespace anabranch;
  MpiWorld world;
  try {
    const Options options = parse(argc, argv);
    const auto group = world.group();
    const auto figures = measure(*group, options);
    if (world.rank() == 0) print(figures, options, world.size());
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    MpiWorld::abort(static_cast<int>(error.fault()));
  }
  return 0;
}
