#include "parallel/grad_reducer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "core/autograd/tape.h"
#include "parallel/lanes.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int kLayers = 6;

// Elementwise layers y = w * x, whose gradients are exact for small whole numbers.
std::vector<Param> make_params(int64_t width) {
  std::vector<Param> all;
  for (int i = 0; i < kLayers; ++i) all.emplace_back(join("w", i), Shape{width}, Init::constant(0));
  return all;
}

std::vector<Param*> pointers(std::vector<Param>& params) {
  std::vector<Param*> all;
  for (Param& w : params) all.push_back(&w);
  return all;
}

Var scale(const Var& x, Param& w) {
  Tensor y = x.value().like("scale");
  for (int64_t i = 0; i < y.count(); ++i) {
    y.data<float>()[i] = w.value.data<float>()[i] * x.value().data<float>()[i];
  }
  return x.tape()->record("scale", y, {&w}, [x, &w](Tape& t, const Tensor& dy) {
    GradSink dw = t.grad(w), dx = t.grad(x);
    for (int64_t i = 0; i < dy.count(); ++i) {
      const float g = dy.data<float>()[i];
      float& to_w = dw.out.data<float>()[i];
      float& to_x = dx.out.data<float>()[i];
      to_w = g * x.value().data<float>()[i] + (dw.accumulate ? to_w : 0);
      to_x = g * w.value.data<float>()[i] + (dx.accumulate ? to_x : 0);
    }
  });
}

struct RankSetup {
  explicit RankSetup(Group& g, int64_t width, int64_t bucket_bytes, DType wire = DType::kF32,
                     bool zero = false)
      : params(make_params(width)),
        mesh(g, mesh_shape(g.size(), 1, 1, 1)),
        store(pointers(params),
              {.bucket_bytes = bucket_bytes,
               .all_ranks = g.size(),
               .data_ranks = g.size(),
               .all_rank = g.rank(),
               .data_rank = g.rank(),
               .zero = zero},
              pool),
        reducer(store, mesh, wire) {
    for (Param& w : params) w.value.copy_from(test::full(w.shape, 1, DType::kF32));
  }

  std::vector<Param> params;
  std::shared_ptr<Pool> pool = std::make_shared<Pool>();
  Mesh mesh;
  FlatStore store;
  GradReducer reducer;
};

// One micro-batch of rank `rank`; `used` names the layers, in forward order.
void backward(std::vector<Param>& params, int batch, const std::vector<int>& used,
              const std::function<void(Param&)>& ready) {
  Tape tape;
  tape.on_grad_ready = ready;
  Var y = tape.input(test::exact(params[0].shape, DType::kF32, batch));
  for (const int i : used) y = scale(y, params[static_cast<size_t>(i)]);
  tape.backward(y, test::full(y.shape(), 1, DType::kF32));
}

const std::vector<int> kTied{0, 1, 2, 3, 4, 5, 0};  // the first is the last again, as an embedding

class Reducer : public testing::TestWithParam<int> {};

TEST_P(Reducer, SumsEqualThoseOfOneRank) {
  const int size = GetParam();
  for (const DType wire : {DType::kF32, DType::kBF16}) {
    for (const int64_t bytes : {1, 300, 1 << 20}) {
      std::vector<Param> want = make_params(33);
      for (Param& w : want) w.value = w.master = test::full(w.shape, 1, DType::kF32);
      for (int batch = 0; batch < 2 * size; ++batch) backward(want, batch, kTied, nullptr);

      run_on_threads(size, [&](Group& g) {
        RankSetup s(g, 33, bytes, wire);
        const auto ready = [&](Param& w) { s.reducer.ready(w); };
        for (int step = 0; step < 3; ++step) {
          s.store.forget_grads();
          backward(s.params, 2 * g.rank(), kTied, ready);
          EXPECT_EQ(s.reducer.started(), step == 0 ? 0 : std::ssize(s.store.buckets()));
          s.reducer.arm();
          backward(s.params, 2 * g.rank() + 1, kTied, ready);
          EXPECT_EQ(s.reducer.started(), std::ssize(s.store.buckets()));
          s.reducer.finish();
          for (size_t i = 0; i < want.size(); ++i) {
            test::expect_equal(s.params[i].grad, want[i].grad, want[i].name);
            EXPECT_FALSE(s.params[i].fresh);
          }
        }
      });
    }
  }
}

TEST_P(Reducer, RanksHaveTheSumsOfWhatTheyOwnAndThenAllValues) {
  const int size = GetParam();
  for (const DType wire : {DType::kF32, DType::kBF16}) {
    for (const int64_t bytes : {1, 300, 1 << 20}) {
      std::vector<Param> want = make_params(133);
      for (Param& w : want) w.value = w.master = test::full(w.shape, 1, DType::kF32);
      for (int batch = 0; batch < 2 * size; ++batch) backward(want, batch, kTied, nullptr);

      run_on_threads(size, [&](Group& g) {
        RankSetup s(g, 133, bytes, wire, true);
        const auto ready = [&](Param& w) { s.reducer.ready(w); };
        s.store.forget_grads();
        backward(s.params, 2 * g.rank(), kTied, ready);
        s.reducer.arm();
        backward(s.params, 2 * g.rank() + 1, kTied, ready);
        s.reducer.finish();
        for (const FlatStore::Entry& e : s.store.entries()) {
          const auto i = static_cast<size_t>(e.param - s.params.data());
          test::expect_equal(e.param->grad.view(e.own.begin, {e.own.count}),
                             want[i].grad.view(e.own.begin, {e.own.count}), want[i].name);
          // What an optimizer would do.
          e.param->master.copy_from(want[i].grad.view(e.own.begin, e.param->master.shape()));
        }
        for (int b = 0; b < std::ssize(s.store.buckets()); ++b) s.reducer.gather(b);
        s.reducer.finish_gather();
        for (size_t i = 0; i < want.size(); ++i) {
          test::expect_equal(s.params[i].value, want[i].grad, want[i].name);
        }
      });
    }
  }
}

// Rank 1 holds the last gather back until rank 0 has been through all layers but the last: a rank
// that waited for more than the values it reads would never come there.
TEST(GradReducer, AForwardBeginsBeforeTheLastValuesAreHere) {
  using namespace std::chrono_literals;
  std::promise<void> been_through;
  const std::shared_future<void> signal = been_through.get_future().share();
  run_on_threads(2, [&](Group& g) {
    RankSetup s(g, 64, 1, DType::kF32, true);
    const int last = 0;  // buckets lie in reverse forward order
    ASSERT_EQ(s.store.buckets().size(), size_t{kLayers});
    for (const FlatStore::Entry& e : s.store.entries()) {
      ASSERT_EQ(e.own.count, 32);
      e.param->master.copy_from(test::full(e.param->master.shape(), 2, DType::kF32));
    }
    for (int b = kLayers - 1; b > last; --b) s.reducer.gather(b);
    if (g.rank() == 1) {
      EXPECT_EQ(signal.wait_for(10s), std::future_status::ready);
      std::this_thread::sleep_for(20ms);  // so that rank 0 asks for what is not there
    }
    s.reducer.gather(last);

    Tape tape;
    Var y = tape.input(test::exact({64}, DType::kF32, 0));
    for (int i = 0; i < kLayers; ++i) {
      if (g.rank() == 0 && i + 1 == kLayers) been_through.set_value();
      y = scale(y, s.params[static_cast<size_t>(i)]);
    }
    const Tensor want = test::numbers({64}, DType::kF32, [](int64_t i) {
      return (int64_t{1} << kLayers) * test::exact_number(0, i);
    });
    test::expect_equal(y.value(), want, join("rank ", g.rank()));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Reducer, testing::Values(1, 2, 3, 4, 8));

// Gradients of 16 samples, which ranks share, as the reducer leaves them.
std::vector<Tensor> summed_in_lanes(Group& g, bool zero) {
  constexpr int64_t kSamples = 16, kWidth = 33;
  std::vector<Param> params = make_params(kWidth);
  const Mesh mesh(g, mesh_shape(g.size(), 1, 1, 1));
  FlatStore store(pointers(params),
                  {.bucket_bytes = 300,
                   .all_ranks = g.size(),
                   .data_ranks = g.size(),
                   .all_rank = g.rank(),
                   .data_rank = g.rank(),
                   .zero = zero,
                   .lanes = kLanes},
                  nullptr);
  GradReducer reducer(store, mesh);
  for (Param& w : params) w.value.copy_from(test::full(w.shape, 0.7, DType::kF32));
  std::vector<Tensor> sums;
  for (int step = 0; step < 2; ++step) {  // what the first leaves must not matter
    store.forget_grads();
    for (int64_t j = 0; j < kSamples / g.size(); ++j) {
      const auto sample = static_cast<uint32_t>(j * g.size() + g.rank());
      Tape tape;
      tape.set_lane(lane_of(j, g));
      if (j + 1 == kSamples / g.size()) {
        reducer.arm();
        tape.on_grad_ready = [&](Param& w) { reducer.ready(w); };
      }
      Var y = tape.input(test::random({kWidth}, sample + 1, DType::kF32));
      for (const int i : {0, 1, 3, 4, 5, 0}) y = scale(y, params[static_cast<size_t>(i)]);
      tape.backward(y, test::full(y.shape(), 1, DType::kF32));
    }
    reducer.finish();
  }
  for (const Param& w : params) sums.push_back(w.grad.clone());
  return sums;
}

TEST(GradReducer, InLanesSumsAreTheSameWhateverTheRanks) {
  const std::vector<Tensor> want = summed_in_lanes(*self_group(), false);
  EXPECT_EQ(test::values(want[2]), std::vector<double>(33, 0));  // of no use to any sample
  for (const int ranks : {2, 4, 8}) {
    for (const bool zero : {false, true}) {
      run_on_threads(ranks, [&](Group& g) {
        const std::vector<Tensor> got = summed_in_lanes(g, zero);
        for (size_t i = 0; i < want.size(); ++i) {
          test::expect_equal(got[i], want[i], join("w", i, " on ", ranks, " ranks"));
        }
      });
    }
  }
}

TEST(GradReducer, TheFirstBucketStartsBeforeTheLastGradientExists) {
  run_on_threads(2, [](Group& g) {
    RankSetup s(g, 32, 1);
    ASSERT_EQ(s.store.buckets().size(), size_t{kLayers});
    s.reducer.arm();
    std::vector<int> started;
    backward(s.params, g.rank(), {0, 1, 2, 3, 4, 5}, [&](Param& w) {
      s.reducer.ready(w);
      started.push_back(s.reducer.started());
    });
    EXPECT_EQ(started, (std::vector<int>{1, 2, 3, 4, 5, 6}));
    s.reducer.finish();
    EXPECT_GE(s.reducer.times().seconds, 0);
  });
}

// Ranks whose gradients become ready in different orders still sum the same buckets.
TEST(GradReducer, TheOrderOfBucketsIsFixed) {
  run_on_threads(4, [](Group& g) {
    RankSetup s(g, 32, 1);
    std::vector<size_t> order{0, 1, 2, 3, 4, 5};
    std::rotate(order.begin(), order.begin() + g.rank(), order.end());
    s.reducer.arm();
    for (const size_t i : order) {
      Param& w = s.params[i];
      w.grad.copy_from(test::full(w.shape, static_cast<double>(i + 1), DType::kF32));
      w.fresh = false;
      s.reducer.ready(w);
    }
    s.reducer.finish();
    for (size_t i = 0; i < s.params.size(); ++i) {
      for (const double v : test::values(s.params[i].grad)) {
        EXPECT_EQ(v, 4 * static_cast<double>(i + 1));
      }
    }
  });
}

TEST(GradReducer, AParameterThatOneRankDoesNotUseCountsAsZero) {
  run_on_threads(3, [](Group& g) {
    RankSetup s(g, 32, 1);
    for (Param& w : s.params) w.grad.copy_from(test::full(w.shape, 77, DType::kF32));  // stale
    s.reducer.arm();
    std::vector<int> used{0, 1, 3, 4, 5};
    if (g.rank() == 1) used = {0, 1, 2, 3, 4, 5};
    backward(s.params, 0, used, [&](Param& w) { s.reducer.ready(w); });
    s.reducer.finish();
    const Tensor x = test::exact({32}, DType::kF32, 0);
    for (int64_t i = 0; i < 32; ++i) {
      EXPECT_EQ(s.params[2].grad.data<float>()[i], x.data<float>()[i]);
      EXPECT_EQ(s.params[3].grad.data<float>()[i], 3 * x.data<float>()[i]);
    }
  });
}

TEST(GradReducer, SplitParametersAreSummedOverDataOnly) {
  run_on_threads(4, [](Group& g) {
    Param whole("whole", {8}, Init::constant(0)), split("split", {8}, Init::constant(0));
    split.reduce = ReduceGroup::kData;
    const Mesh mesh(g, mesh_shape(4, 2, 1, 1));
    FlatStore store({&whole, &split}, {.all_ranks = 4, .data_ranks = 2}, nullptr);
    GradReducer reducer(store, mesh);
    for (Param* w : {&whole, &split}) {
      w->grad.copy_from(test::full({8}, 1 << g.rank(), DType::kF32));
      w->fresh = false;
    }
    reducer.arm();
    reducer.finish();
    EXPECT_EQ(*whole.grad.data<float>(), 15);
    EXPECT_EQ(*split.grad.data<float>(), g.rank() % 2 == 0 ? 5 : 10);
  });
}

TEST(GradReducer, SplitParametersAreShardedOverData) {
  run_on_threads(4, [](Group& g) {
    Param whole("whole", {200}, Init::constant(0)), split("split", {200}, Init::constant(0));
    split.reduce = ReduceGroup::kData;
    const Mesh mesh(g, mesh_shape(4, 2, 1, 1));
    FlatStore store({&whole, &split},
                    {.all_ranks = 4,
                     .data_ranks = 2,
                     .all_rank = g.rank(),
                     .data_rank = mesh.data().rank(),
                     .zero = true},
                    nullptr);
    GradReducer reducer(store, mesh);
    for (Param* w : {&whole, &split}) {
      w->grad.copy_from(test::full({200}, 1 << g.rank(), DType::kF32));
      w->fresh = false;
    }
    reducer.arm();
    reducer.finish();
    for (const FlatStore::Entry& e : store.entries()) {
      ASSERT_GT(e.own.count, 0);
      e.param->master.copy_from(e.param->grad.view(e.own.begin, {e.own.count}));
      reducer.gather(e.bucket);
    }
    reducer.finish_gather();
    for (const double v : test::values(whole.value)) EXPECT_EQ(v, 15);
    for (const double v : test::values(split.value)) EXPECT_EQ(v, g.rank() % 2 == 0 ? 5 : 10);
  });
}

TEST(GradReducer, MisuseIsRefused) {
  const auto self = self_group();
  RankSetup s(*self, 4, 1);
  EXPECT_THROW(s.reducer.finish(), Error);
  s.reducer.arm();
  EXPECT_THROW(s.reducer.arm(), Error);
  s.reducer.ready(s.params[0]);
  EXPECT_THROW(s.reducer.ready(s.params[0]), Error);
  Param stranger("stranger", {4}, Init::constant(0));
  EXPECT_THROW(s.reducer.ready(stranger), Error);
  EXPECT_THROW(GradReducer(s.store, s.mesh, DType::kF64), Error);
}

}  // namespace
}  // namespace anabranch
