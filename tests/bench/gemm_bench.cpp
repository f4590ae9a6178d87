// Times the matrix products of a GPT-2 124M step of 4,096 tokens, and the ops around them.
//
//   gemm_bench [threads] [repeats]
//
// Prints the median of the repeats, and the best rate by the processor time of the whole program
// and its threads, which means something on a busy machine. A product has 2 m n k operations.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>

#include "core/base/parallel_for.h"
#include "core/ops/adamw.h"
#include "core/ops/embedding.h"
#include "core/ops/gemm.h"
#include "core/ops/linear.h"
#include "core/ops/linear_cross_entropy.h"
#include "core/ops/squared_norm.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kRows = 4096, kWidth = 768, kVocabulary = 50257;

struct Bench {
  int repeats;
  std::shared_ptr<Pool> pool = std::make_shared<Pool>();

  Tensor tensor(Shape shape, DType type) const {
    Tensor t(shape, type, pool, "bench");
    t.copy_from(test::full(shape, 0.01, type));
    return t;
  }

  void time(const std::string& name, double operations, const std::function<void()>& f) const {
    std::vector<double> seconds, processor;
    f();
    for (int i = 0; i < repeats; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const std::clock_t used = std::clock();
      f();
      processor.push_back(static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC);
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    const double best = *std::min_element(processor.begin(), processor.end());
    std::printf("%-34s %8.2f ms %5.0f GFLOP/s; processor %8.2f ms %5.0f GFLOP/s\n", name.c_str(),
                median * 1e3, operations / median * 1e-9, best * 1e3, operations / best * 1e-9);
    std::fflush(stdout);
  }

  void linear_shapes(DType type) const {
    const std::pair<int64_t, int64_t> shapes[] = {
        {2304, 768}, {768, 768}, {3072, 768}, {768, 3072}};
    for (const auto& [M, K] : shapes) {
      const double operations = 2.0 * static_cast<double>(kRows * M * K);
      const Tensor x = tensor({kRows, K}, type), dy = tensor({kRows, M}, type);
      Tensor dx = tensor({kRows, K}, type), dw = tensor({M, K}, accumulator_of(type));
      Param w = test::param("w", tensor({M, K}, type));
      Param bias = test::param("b", tensor({M}, accumulator_of(type)));
      const std::string name = join(name_of(type), " ", M, " x ", K, " ");
      time(name + "y", operations, [&] { linear(x, w, &bias); });
      if (M == 3072) time(name + "y gelu", operations, [&] { linear_gelu(x, w, bias); });
      time(name + "dx", operations, [&] { gemm(dx, dy, w.value); });
      time(name + "dw", operations, [&] { gemm(dw, dy, x, {.transpose_a = true}); });
      GradSink db{tensor({M}, accumulator_of(type)), false};
      time(name + "db", 0, [&] { cpu::column_sums(db, dy); });
    }
  }

  void head(DType type) const {
    Param w = test::param("w", tensor({kVocabulary, kWidth}, type));
    w.grad = tensor({kVocabulary, kWidth}, accumulator_of(type));
    const Tensor x = tensor({kRows, kWidth}, type);
    Tensor ids({kRows}, DType::kI32);
    for (int64_t n = 0; n < kRows; ++n) {
      ids.data<int32_t>()[n] =
          static_cast<int32_t>(philox(1, static_cast<uint64_t>(n))[0] % kVocabulary);
    }
    const double operations = 2.0 * static_cast<double>(kRows * kWidth * kVocabulary);
    time(join(name_of(type), " loss and gradients"), 3 * operations, [&] {
      Tape tape;
      linear_cross_entropy(tape.input(x), w, ids, 1);
    });
    time(join(name_of(type), " loss alone"), operations,
         [&] { linear_cross_entropy(x, w, ids, 1); });
    GradSink dtable{w.grad, true};
    time(join(name_of(type), " embedding backward"), 0,
         [&] { cpu::embedding_backward(dtable, ids, x); });
  }

  void optimizer() const {
    const Shape shape{kVocabulary * kWidth};
    Tensor p = tensor(shape, DType::kF32), m = tensor(shape, DType::kF32);
    Tensor v = tensor(shape, DType::kF32), value = tensor(shape, DType::kBF16);
    const Tensor g = tensor(shape, DType::kF32);
    time("adamw, 38.6M parameters", 0, [&] { adamw(p, m, v, g, &value, {.lr = 1e-3}); });
    time("squared norm, 38.6M parameters", 0, [&] { squared_norm(g); });
  }
};

}  // namespace
}  // namespace anabranch

int main(int argc, char** argv) {
  anabranch::set_thread_count(argc > 1 ? std::atoi(argv[1]) : 2);
  const anabranch::Bench bench{argc > 2 ? std::atoi(argv[2]) : 5};
  for (const anabranch::DType type : {anabranch::DType::kF32, anabranch::DType::kBF16}) {
    bench.linear_shapes(type);
    bench.head(type);
  }
  bench.optimizer();
}
