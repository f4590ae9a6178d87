// Ops of a step, counted.
#include "runtime/bench/ops_bench.h"

#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace anabranch {
namespace {

// Bytes of this process that lie in memory.
int64_t resident() {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0;
  in >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Activations of 32 Ki tokens alone would be hundreds of megabytes.
TEST(OpsBench, CountingTouchesNoTensors) {
  constexpr int64_t kLittle = int64_t{48} << 20;
  for (const char* model : {"ffn_width: 2048", "type: cmollm, streams: 4, ffn_width: 2048",
                            "type: kappa_moe, experts: 8", "type: altup"}) {
    const Config config =
        parse_config(std::string("model: {layers: 2, width: 512, heads: 8, context: 1024, ") +
                         model + "}\ntrain: {micro_batch: 32, batch_tokens: 32768}\n",
                     "bench");
    const int64_t before = resident();
    const auto pool = std::make_shared<Pool>();
    EXPECT_GT(bench_ops(config, 50257, 0, pool).size(), 20U);
    EXPECT_LT(resident() - before, kLittle) << model;  // the pool keeps what it had
  }
}

}  // namespace
}  // namespace anabranch
