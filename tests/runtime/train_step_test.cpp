#include "runtime/train_step.h"

#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kVocabulary = 20;

Config config_of(int64_t zero) {
  return parse_config("data: {path: none}\nmodel: {layers: 3, width: 32, heads: 2, context: 8}\n" +
                          join("train: {steps: 3, batch_tokens: 32, micro_batch: 2}\n",
                               "optim: {clip: 0}\nparallel: {zero: ", zero, ", bucket_mb: 0.01}\n"),
                      "step");
}

Tensor ids(int rank) {
  Tensor t({2, 8}, DType::kI32);
  for (int64_t i = 0; i < t.count(); ++i) {
    t.data<int32_t>()[i] = static_cast<int32_t>((3 * i + rank) % kVocabulary);
  }
  return t;
}

// Three steps of two ranks; `before_update` and `before_batch` are called with rank and step.
std::vector<double> losses(int64_t zero, const std::function<void(int, int64_t)>& before_update,
                           const std::function<void(int, int64_t)>& before_batch) {
  const Config config = config_of(zero);
  std::vector<double> of_rank_0;
  run_on_threads(2, [&](Group& world) {
    RankContext context;
    context.rank = world.rank();
    context.pool = std::make_shared<Pool>();
    const BatchPlan plan = plan_batch(config, world.size());
    TrainStep step(config, plan, kVocabulary, world, context);
    const auto next = [&]() -> MicroBatch {
      before_batch(world.rank(), step.state().step);
      return {ids(world.rank()), ids(world.rank() + 1), 0};
    };
    for (; step.state().step < plan.steps; ++step.state().step) {
      step.accumulate(next);
      step.reduce();
      if (world.rank() == 0) of_rank_0.push_back(step.loss());
      const double norm = step.grad_norm();
      before_update(world.rank(), step.state().step);
      step.update(norm);
    }
  });
  return of_rank_0;
}

// Rank 1 holds all values of its update back until rank 0 has begun the next step.
TEST(TrainStep, TheNextStepBeginsBeforeTheValuesAreHere) {
  using namespace std::chrono_literals;
  std::promise<void> begun;
  const std::shared_future<void> signal = begun.get_future().share();
  const auto hold = [&](int rank, int64_t step) {
    if (rank != 1 || step != 1) return;
    EXPECT_EQ(signal.wait_for(10s), std::future_status::ready);
    std::this_thread::sleep_for(20ms);  // so that rank 0 asks for what is not there
  };
  const auto begin = [&](int rank, int64_t step) {
    if (rank == 0 && step == 2) begun.set_value();
  };
  const auto nothing = [](int, int64_t) {};
  EXPECT_EQ(losses(1, hold, begin), losses(0, nothing, nothing));
}

}  // namespace
}  // namespace anabranch
