// What groups of ranks with GPUs can get wrong and others cannot. What every group does they do in
// tests/parallel/comm/group_gpu_test.cpp.
#include <atomic>
#include <chrono>
#include <thread>

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/grad_reducer.h"
#include "parallel/mesh.h"
#include "parallel/pool_choice.h"
#include "parallel/pool_rows.h"
#include "tests/cuda_sim/sim.h"
#include "tests/parallel/comm/gpu_ranks.h"
#include "tests/parallel/comm/group_checks.h"
#include "tests/support/plans.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace anabranch::cuda_sim {
namespace {

using test::exact;
using test::run_on_gpus;
using test::TestDevice;
using testing::HasSubstr;

void await(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

Tensor sum_of_two(int64_t count) {
  return test::numbers({count}, DType::kF32, [](int64_t i) {
    return test::exact_number(0, i) + test::exact_number(1, i);
  });
}

bool equal(const Tensor& there, const Tensor& want) {
  const Tensor got = there.copy_in(nullptr);
  return std::ranges::equal(got.span<float>(), want.span<float>());
}

// Tensors of the CPU still go by the host's group, bit by bit as without GPUs.
TEST(DeviceGroups, TensorsOfTheCpuGoByTheHost) {
  for (const test::GroupCheck& check : test::group_checks()) {
    run_on_gpus(3, [&](Group& g, const TestDevice& /*on*/) { check.run(g, {}); });
  }
}

TEST(DeviceGroups, CopyWhatCannotBeSummed) {
  run_on_gpus(2, [](Group& g, const TestDevice& on) {
    const auto rank = static_cast<uint8_t>(g.rank());
    const Tensor part = on.place(Tensor::of<uint8_t>({3}, {rank, 7, 255}));
    const Tensor whole({6}, DType::kU8, on.pool);
    g.all_gather(whole, part).wait();
    const Tensor host = whole.copy_in(nullptr);
    EXPECT_THAT(host.span<uint8_t>(), testing::ElementsAre(0, 7, 255, 1, 7, 255));
    const Tensor ids = on.place(Tensor::of<int32_t>({3}, {rank, 1 << 30, -1}));
    const Tensor got({2 + 2 * g.rank()}, DType::kI32, on.pool);
    g.all_to_all(got, ids, {1, 2}, {1 + g.rank(), 1 + g.rank()}).wait();
    const Tensor here = got.copy_in(nullptr);
    const auto values = here.span<int32_t>();
    const std::vector<int32_t> want[] = {{0, 1}, {1 << 30, -1, 1 << 30, -1}};
    EXPECT_THAT(values, testing::ElementsAreArray(want[rank]));
  });
}

// What only one rank starts runs nowhere, and nobody waits for it but who says so.
TEST(DeviceGroups, NeitherHostNorComputeStreamIsBlocked) {
  for_each_schedule(2, [](const std::string& name) {
    std::atomic<bool> computed = false;
    run_on_gpus(2, [&](Group& g, const TestDevice& on) {
      const Tensor x = on.place(exact({1000}, DType::kF32, g.rank()));
      Tensor other = on.place(exact({10}, DType::kF32, 3));
      if (g.rank() == 1) await(computed);
      const Work work = g.all_reduce_sum(x);
      if (g.rank() == 0) {
        other.fill_zero();
        EXPECT_TRUE(equal(other, test::numbers({10}, DType::kF32, [](int64_t) { return 0; })));
        EXPECT_FALSE(work.done());
        work.wait();  // does not wait for rank 1 either
        computed = true;
      }
      work.wait();
      test::expect_equal(x, sum_of_two(1000), name);
    });
  });
}

// Reads the result with or without waiting; under how many policies it is wrong.
int wrong_results(bool waits) {
  std::atomic<int> wrong = 0;
  for_each_schedule(4, [&](const std::string& /*name*/) {
    run_on_gpus(2, [&](Group& g, const TestDevice& on) {
      const Tensor x = on.place(exact({100}, DType::kF32, g.rank()));
      const Work work = g.all_reduce_sum(x);
      if (waits) work.wait();
      if (!equal(x, sum_of_two(100))) ++wrong;
    });
  });
  return wrong;
}

TEST(DeviceGroups, AMissingWaitShows) {
  EXPECT_EQ(wrong_results(true), 0);
  EXPECT_GT(wrong_results(false), 0);
}

// The collective reads what the compute stream wrote before, and what that writes afterwards,
// having waited, comes too late for it.
TEST(DeviceGroups, CollectivesKeepTheirPlaceAmongComputation) {
  for_each_schedule(6, [](const std::string& name) {
    run_on_gpus(3, [&](Group& g, const TestDevice& on) {
      Tensor x({500}, DType::kF32, on.pool), sum({1500}, DType::kF32, on.pool);
      for (int step = 0; step < 4; ++step) {
        x.copy_from(exact({500}, DType::kF32, g.rank() + step));
        g.all_gather(sum, x).wait();
        x.fill_zero();
        const Tensor copy = sum.clone();
        const Tensor want = test::numbers({1500}, DType::kF32, [&](int64_t i) {
          return test::exact_number(static_cast<int>(i / 500) + step, i % 500);
        });
        test::expect_equal(copy, want, name);
      }
    });
  });
}

// The memory of tensors that were waited for is the compute stream's again.
TEST(DeviceGroups, TensorsAreLetGo) {
  run_on_gpus(2, [](Group& g, const TestDevice& /*on*/) {
    const auto pool = std::make_shared<Pool>(Device{Device::Kind::kCuda, g.rank()});
    const Tensor mark({1}, DType::kF32, pool);
    for (int i = 0; i < 50; ++i) {
      g.all_reduce_sum(exact({100}, DType::kF32, g.rank()).copy_in(pool)).wait();
    }
    EXPECT_EQ(pool->usage().peak, 404);
    Work work = g.all_reduce_sum(exact({100}, DType::kF32, g.rank()).copy_in(pool));
    EXPECT_EQ(pool->usage().live, 404);  // held: nobody has waited
    while (!work.done() || pool->usage().live > 4) std::this_thread::yield();
  });
}

// Rank 1 comes late: rank 0's compute stream stands still, which only the GPU sees.
TEST(DeviceGroups, SayHowLongTheyHoldUpTheComputeStream) {
  constexpr double kLate = 0.02;
  std::atomic<bool> waits = false;
  run_on_gpus(2, [&](Group& g, const TestDevice& on) {
    const Tensor x = on.place(exact({5}, DType::kF32, 0));
    if (g.rank() == 1) {
      await(waits);
      std::this_thread::sleep_for(std::chrono::duration<double>(kLate));
    }
    const Work work = g.all_reduce_sum(x);
    work.wait();
    waits = true;
    static_cast<void>(x.copy_in(nullptr));
    EXPECT_TRUE(work.done());
    // Else the streams come to it only when they are asked for, which is later.
    const bool at_once = options().streams == Streams::kEager && g.rank() == 0;
    EXPECT_GE(work.seconds(), at_once ? kLate : 0);
    EXPECT_GE(work.held_up(), at_once ? kLate : 0);
  });
}

TEST(DeviceGroups, SumGradientsInBuckets) {
  for (const bool zero : {false, true}) {
    run_on_gpus(3, [&](Group& g, const TestDevice& on) {
      const Mesh mesh(g, mesh_shape(g.size(), 1, 1, 1));
      std::vector<Param> params;
      for (int i = 0; i < 5; ++i) params.emplace_back(join("w", i), Shape{70}, Init::constant(0));
      std::vector<Param*> all;
      for (Param& w : params) all.push_back(&w);
      FlatStore store(all,
                      {.bucket_bytes = 400,
                       .all_ranks = g.size(),
                       .data_ranks = g.size(),
                       .all_rank = g.rank(),
                       .data_rank = g.rank(),
                       .zero = zero},
                      on.pool);
      GradReducer reducer(store, mesh);
      reducer.arm();
      // NOLINTNEXTLINE(modernize-loop-convert): backwards
      for (auto w = params.rbegin(); w != params.rend(); ++w) {
        w->grad.copy_from(exact({70}, DType::kF32, g.rank() + static_cast<int>(w->name.back())));
        w->fresh = false;
        reducer.ready(*w);
      }
      reducer.finish();
      for (size_t b = 0; b < store.buckets().size(); ++b) {
        Tensor value = store.buckets()[b].value;
        value.copy_from(store.buckets()[b].grad);
        reducer.gather(static_cast<int>(b));
      }
      reducer.finish_gather();
      for (const Param& w : params) {
        const Tensor want = test::numbers({70}, DType::kF32, [&](int64_t i) {
          int64_t sum = 0;
          for (int r = 0; r < 3; ++r) sum += test::exact_number(r + w.name.back(), i);
          return sum;
        });
        test::expect_equal(w.value, want, join("sum of ", w.name, zero ? ", sharded" : ""));
      }
      EXPECT_GT(reducer.times().seconds, 0);
    });
  }
}

TEST(DeviceGroups, GroupsOfAMeshOverlap) {
  for_each_schedule(2, [](const std::string& name) {
    run_on_gpus(4, [&](Group& g, const TestDevice& on) {
      const Mesh mesh(g, {.data = 2, .model = 2, .pool = 4});
      const Tensor a = on.place(Tensor::of<float>({1}, {1})), b = a.clone(), c = a.clone(),
                   d = a.clone();
      const Work works[] = {mesh.model().all_reduce_sum(a), mesh.data().all_reduce_sum(b),
                            mesh.pool().all_reduce_sum(c), mesh.all().all_reduce_sum(d)};
      for (const Work& work : works) work.wait();
      for (const Tensor& t : {a, b}) test::expect_equal(t, Tensor::of<float>({1}, {2}), name);
      for (const Tensor& t : {c, d}) test::expect_equal(t, Tensor::of<float>({1}, {4}), name);
    });
  });
}

// Whoever asks has waited, whenever the streams run.
TEST(DeviceGroups, CountAndChooseInAPool) {
  using Counts = std::vector<int64_t>;
  const Tensor scores = test::numbers({80, 3}, DType::kF32, [](int64_t i) { return i * i % 7; });
  const ExpertChoiceRule rule{1, 80, SlotOrder::kTime};
  const ExpertChoice whole = expert_choice(scores, rule);
  for_each_schedule(4, [&](const std::string& name) {
    run_on_gpus(2, [&](Group& g, const TestDevice& on) {
      const int64_t r = g.rank();
      const Tensor counts = on.place(Tensor::of<int64_t>({2, 1}, {5 + r, 7}));
      const PoolCounts first(counts, g), second(counts, g);
      EXPECT_EQ(test::elements<int64_t>(first.before()), (Counts{5 * r, 11 + 7 * r})) << name;
      EXPECT_EQ(test::elements<int64_t>(second.demand()), (Counts{25})) << name;
      const SlotPlan want = slots_of(whole.plan, 40 * r, 40);
      const Tensor mine = on.place(scores.view(120 * r, {40, 3}));
      for (const auto method : {choose_by_gather, choose_by_radix}) {
        const ExpertChoice got = method(mine, rule, g);
        EXPECT_EQ(test::used(got.plan, got.plan.gate), test::ints(want.gate)) << name;
        EXPECT_EQ(test::values(got.kth), test::values(whole.kth)) << name;
      }
    });
  });
}

TEST(DeviceGroups, RefuseTensorsOfAnotherDevice) {
  run_on_gpus(2, [](Group& g, const TestDevice& on) {
    const Tensor here = on.place(exact({4}, DType::kF32, 0)), host = exact({2}, DType::kF32, 0);
    EXPECT_THROW(g.all_gather(here, host), Error);
    const auto other = std::make_shared<Pool>(Device{Device::Kind::kCuda, 5});
    EXPECT_THROW(g.all_reduce_sum(Tensor({2}, DType::kF32, other)), Error);
    cudaSetDevice(g.rank());
    g.barrier();
  });
  run_on_threads(2, [](Group& g) {
    const TestDevice on{"cuda", std::make_shared<Pool>(Device{Device::Kind::kCuda, g.rank()})};
    EXPECT_THROW(g.all_reduce_sum(on.place(exact({4}, DType::kF32, 0))), Error);
    g.barrier();
  });
}

// What `f` throws as an Error.
Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Fault::kInternal, ""};
}

// Waits till the rank's communication has failed.
void until_it_fails(const Group& g) {
  for (int i = 0; i < 10000; ++i) {
    g.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(DeviceGroupsFailing, AnAbortEndsWhatIsUnderWay) {
  for_each_schedule(1, [](const std::string& name) {
    std::atomic<bool> started = false;
    run_on_gpus(2, [&](Group& g, const TestDevice& on) {
      if (g.rank() == 1) {
        await(started);
        g.abort("enough");
        return;
      }
      const Tensor x = on.place(exact({100}, DType::kF32, 0));
      const Work work = g.all_reduce_sum(x);
      work.wait();
      started = true;
      static_cast<void>(x.copy_in(nullptr));  // comes to an end, with anything
      const Error error = error_of([&] { until_it_fails(g); });
      EXPECT_EQ(error.fault(), Fault::kPeer) << name;
      EXPECT_THAT(error.what(), HasSubstr("rank 1 of 2 failed: enough"));
      EXPECT_THROW(work.wait(), Error);
      EXPECT_FALSE(work.done());
      EXPECT_THROW(g.all_reduce_sum(x), Error);
    });
  });
}

TEST(DeviceGroupsFailing, TheFirstErrorIsRethrownAndNoOneWaits) {
  const Error error = error_of([] {
    run_on_gpus(3, [](Group& g, const TestDevice& on) {
      const Tensor x = on.place(exact({100}, DType::kF32, 0));
      const auto pair = g.split(g.rank() == 0 ? 0 : 1, 0);
      g.all_reduce_sum(x).wait();
      if (g.rank() == 2) throw data_error("shard 7 is broken");
      (g.rank() == 1 ? *pair : g).all_reduce_sum(x).wait();
      static_cast<void>(x.copy_in(nullptr));
      g.barrier();
    });
  });
  EXPECT_EQ(error.fault(), Fault::kData);
}

TEST(DeviceGroupsFailing, ADeadlineEndsAHang) {
  std::atomic<bool> over = false;
  const Error error = error_of([&] {
    run_on_gpus(2, [&](Group& g, const TestDevice& on) {
      g.set_deadline(0.2);
      if (g.rank() == 1) return await(over);
      const Tensor x = on.place(exact({5}, DType::kF32, 0));
      g.all_reduce_sum(x.clone()).wait();
      static_cast<void>(x.copy_in(nullptr));
      const Error late = error_of([&] { until_it_fails(g); });
      over = true;
      throw Error(late);
    });
  });
  EXPECT_EQ(error.fault(), Fault::kPeer);
  EXPECT_THAT(error.what(),
              HasSubstr("all_reduce_sum #0 of float32[5] on rank 0 of 2 waited 0.2 s"));
}

TEST(DeviceGroupsFailing, ALostNetworkIsTold) {
  run_on_gpus(2, [](Group& g, const TestDevice& on) {
    const Tensor x = on.place(exact({5}, DType::kF32, 0));
    const Error error = error_of([&] {
      g.barrier();
      for (int i = 0; i < 1000000; ++i) {
        g.all_reduce_sum(x).wait();
        if (g.rank() == 0 && i == 3) break_network(0);
      }
    });
    EXPECT_EQ(error.fault(), Fault::kPeer);
    if (g.rank() == 1) return;  // is told by rank 0, or does not notice
    EXPECT_THAT(error.what(), HasSubstr("network error"));
    g.abort("lost");
  });
}

// The faults of the devices, which are then whole again.
std::string take_faults() {
  std::string all;
  for (int device = 3; device >= 0; --device) {
    cudaSetDevice(device);
    all += take_fault();
  }
  return all;
}

TEST(DeviceGroupsFailing, DifferentCallsAreFaults) {
  const Error error = error_of([] {
    run_on_gpus(2, [](Group& g, const TestDevice& on) {
      const Tensor x = on.place(exact({5 + g.rank()}, DType::kF32, 0));
      g.all_reduce_sum(x).wait();
      static_cast<void>(x.copy_in(nullptr));
      until_it_fails(g);
    });
  });
  EXPECT_THAT(error.what(), HasSubstr("where rank 1 calls all-reduce of 6 float32"));
  EXPECT_THAT(take_faults(), HasSubstr("rank 0 calls all-reduce of 5 float32"));
}

TEST(DeviceGroupsFailing, AnotherOrderIsAFault) {
  static_cast<void>(error_of([] {
    run_on_gpus(2, [](Group& g, const TestDevice& on) {
      const auto other = g.split(0, -g.rank());
      const Tensor x = on.place(exact({5}, DType::kF32, 0)), y = x.clone();
      Group &first = g.rank() == 0 ? g : *other, &second = g.rank() == 0 ? *other : g;
      first.all_reduce_sum(x).wait();
      second.all_reduce_sum(y).wait();
      static_cast<void>(y.copy_in(nullptr));
      until_it_fails(g);
    });
  }));
  EXPECT_THAT(take_faults(), HasSubstr("not in one order"));
}

}  // namespace
}  // namespace anabranch::cuda_sim
