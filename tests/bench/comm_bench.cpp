// Seconds of an all-reduce by size, over MPI ranks:  mpirun -n 2 comm_bench

#include <algorithm>
#include <chrono>
#include <iostream>
#include <vector>

#include "core/base/error.h"
#include "parallel/comm/mpi_world.h"

namespace anabranch {
namespace {

using Clock = std::chrono::steady_clock;

double median_seconds(Group& world, Tensor x, int repeats) {
  std::vector<double> all;
  for (int i = 0; i < repeats; ++i) {
    world.barrier();
    const auto begin = Clock::now();
    world.all_reduce_sum(x).wait();
    all.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void measure(Group& world) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (int64_t bytes = 8; bytes <= int64_t{64} << 20; bytes *= 8) {
      Tensor x({bytes / size_of(type)}, type);
      x.fill_zero();
      const double seconds = median_seconds(world, x, bytes > 1 << 20 ? 9 : 50);
      if (world.rank() != 0) continue;
      std::cout << name_of(type) << ' ' << bytes << " bytes: " << 1e3 * seconds << " ms, "
                << static_cast<double>(bytes) / seconds * 1e-9 << " GB/s\n";
    }
  }
}

}  // namespace
}  // namespace anabranch

int main() {
  using namespace anabranch;
  MpiWorld world;
  try {
    const auto group = world.group();
    measure(*group);
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    MpiWorld::abort(static_cast<int>(error.fault()));
  }
  return 0;
}
