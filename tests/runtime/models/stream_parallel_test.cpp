// Streams, and copies of the input, over ranks against one rank that has them all (T8 of the
// paper's checks): losses, every gradient, steps and figures.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "runtime/models/cmollm.h"
#include "runtime/models/parascale.h"
#include "runtime/training_state.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kSequences = 12;  // of a step, over all ranks
constexpr int64_t kVocabulary = 40, kLayers = 2, kWidth = 8, kHidden = 10, kStreams = 4;

struct Case {
  const char* name;
  void (*set)(CmollmKeys& keys, Gpt2Options& o) = [](CmollmKeys&, Gpt2Options&) {};
  bool parascale = false;
  bool documents = false;  // two a sequence, masked
};

// What a rank trains, and how.
struct Trial {
  Case variant;
  StreamLayout layout = StreamLayout::kGather;
  DType type = DType::kF64;
  int64_t tokens = 6;
  bool swapped = false;  // the wrong streams on each of two ranks
};

Config config_of() {
  Config config;
  config.optim.lr = 1e-2;
  config.optim.schedule = ScheduleForm::kConstant;
  config.optim.clip = 0.5;
  return config;
}

std::pair<Gpt2Options, CmollmKeys> options_of(const Trial& trial) {
  Gpt2Options o;
  o.layers = kLayers;
  o.width = kWidth;
  o.heads = 2;
  o.context = trial.tokens;
  o.vocabulary = kVocabulary;
  o.ffn_width = kHidden;
  o.compute = trial.type;
  CmollmKeys keys;
  keys.streams = kStreams;
  keys.gate_heads = 2;
  keys.bal_alpha = 0.1;
  trial.variant.set(keys, o);
  return {o, keys};
}

std::unique_ptr<Model> model_of(const Trial& trial, Group& world) {
  const auto [options, keys] = options_of(trial);
  const Regions regions{&world, nullptr, trial.layout};
  if (!trial.variant.parascale) return std::make_unique<Cmollm>(options, keys, regions);
  return std::make_unique<Parascale>(options, ParascaleKeys{kStreams, 3, 0.01}, regions);
}

// One rank of a job in which all parameters but the streams' are summed over all ranks.
class Job {
 public:
  Job(const Trial& trial, Group& world)
      : trial_(trial),
        world_(world),
        config_(config_of()),
        model_(model_of(trial, world)),
        state_(*model_, config_, FlatStore::Options{}, nullptr),
        measures_(model_->measure_places(1), model_->detail_places()) {
    if (!trial.swapped) return;
    model_->visit([&](Param& w) {
      if (w.reduce != ReduceGroup::kData) return;
      Tensor all({2, w.shape.count()}, w.master.dtype());
      world.all_gather(all, w.master).wait();
      w.master.copy_from(all.view((1 - world.rank()) * w.shape.count(), w.shape));
    });
    state_.store().refresh_values();
  }

  // The loss of a step over all ranks; leaves its gradients, summed, and figures.
  double backward(int64_t step) {
    state_.store().forget_grads();
    std::ranges::fill(measures_.sums(), 0.0);
    measures_.detailed = true;
    Tensor loss = test::full({1}, 0);
    for (int64_t at = world_.rank(); at < kSequences; at += world_.size()) {
      const MicroBatch batch = sequence(at);
      Tape tape;
      const double scale = 1.0 / static_cast<double>(kSequences * trial_.tokens);
      const Var y = model_->loss(tape, batch, {1, step, &measures_}, scale);
      loss.data<double>()[0] += test::values(y.value()).front();
      tape.backward(y);
    }
    model_->visit([&](Param& w) {
      if (w.reduce == ReduceGroup::kAll) world_.all_reduce_sum(w.grad).wait();
    });
    world_.all_reduce_sum(loss).wait();
    if (measures_.sums().empty()) return loss.data<double>()[0];
    Tensor sums = Tensor::of<double>({std::ssize(measures_.sums())},
                                     {measures_.sums().begin(), measures_.sums().end()});
    world_.all_reduce_sum(sums).wait();
    std::ranges::copy(sums.span<double>(), measures_.sums().begin());
    return loss.data<double>()[0];
  }

  double grad_norm() {
    Tensor squares = test::full({1}, 0);  // of what this rank alone has
    double shared = 0;
    model_->visit([&](const Param& w) {
      double& to = w.reduce == ReduceGroup::kAll ? shared : squares.data<double>()[0];
      for (const double v : test::values(w.grad)) to += v * v;
    });
    if (world_.size() > 1) world_.all_reduce_sum(squares).wait();
    return std::sqrt(shared + squares.data<double>()[0]);
  }

  void update(int64_t step) {
    state_.optimizer().step(step, grad_norm());
    model_->end_step(measures_);
  }

  // Validation losses of this rank's first sequence.
  std::vector<double> token_losses() {
    return test::values(model_->token_losses(sequence(world_.rank()), Routing::kAsTrained));
  }

  Model& model() { return *model_; }

  [[nodiscard]] std::vector<Reading> readings() const { return model_->readings(measures_); }

 private:
  // The same in every step, so that there is something to learn.
  [[nodiscard]] MicroBatch sequence(int64_t at) const {
    const int64_t T = trial_.tokens;
    Tensor inputs({1, T}, DType::kI32), targets({1, T}, DType::kI32);
    for (int64_t t = 0; t <= T; ++t) {
      const auto key = static_cast<uint64_t>(at * (T + 1) + t);
      const auto id = static_cast<int32_t>(philox(5, key)[0] % kVocabulary);
      if (t < T) inputs.data<int32_t>()[t] = id;
      if (t > 0) targets.data<int32_t>()[t - 1] = id;
    }
    if (!trial_.variant.documents) return {inputs, targets, at};
    Tensor starts({1, T}, DType::kI32);
    const auto second = static_cast<int32_t>(1 + at % (T - 1));
    for (int64_t t = 0; t < T; ++t) starts.data<int32_t>()[t] = t < second ? 0 : second;
    return {inputs, targets, at, starts};
  }

  Trial trial_;
  Group& world_;
  Config config_;
  std::unique_ptr<Model> model_;
  TrainingState state_;
  Measures measures_;
};

// What one rank has after a step, and its losses.
struct Results {
  std::map<std::string, Tensor> gradients;  // of the first step
  double largest = 0;                       // of them
  double norm = 0;
  std::vector<Reading> readings;  // after its update
  std::vector<double> token_losses;
  std::vector<double> losses;
};

Results alone(const Trial& trial, int64_t steps) {
  Results results;
  run_on_threads(1, [&](Group& world) {
    Job job(trial, world);
    results.token_losses = job.token_losses();
    for (int64_t step = 0; step < steps; ++step) {
      results.losses.push_back(job.backward(step));
      if (step == 0) {
        job.model().visit([&](const Param& w) {
          results.gradients[w.name] = w.grad.clone();
          for (const double v : test::values(w.grad)) {
            results.largest = std::max(results.largest, std::abs(v));
          }
        });
        results.norm = job.grad_norm();
      }
      job.update(step);
      if (step == 0) results.readings = job.readings();
    }
  });
  return results;
}

void expect_gradients(Job& job, const Results& want, double relative) {
  EXPECT_NEAR(job.grad_norm(), want.norm, relative * want.norm);
  int split = 0;
  job.model().visit([&](const Param& w) {
    split += w.reduce == ReduceGroup::kData ? 1 : 0;
    const Tensor& whole = want.gradients.at(w.name);
    ASSERT_EQ(w.global_shape, whole.shape()) << w.name;
    w.part().runs(0, w.shape.count(), [&](int64_t here, int64_t there, int64_t count) {
      test::expect_near(w.grad.view(here, {count}), test::values(whole.view(there, {count})),
                        {relative, relative * want.largest}, "gradient of " + w.name);
    });
  });
  EXPECT_GT(split, 0);
}

void expect_readings(const std::vector<Reading>& got, const std::vector<Reading>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(got[i].metric == want[i].metric && got[i].layer == want[i].layer &&
                got[i].part == want[i].part);
    EXPECT_NEAR(got[i].value, want[i].value, 1e-9 * std::max(1.0, std::abs(want[i].value)))
        << "figure " << i << " of layer " << want[i].layer;
  }
}

// The same job on `ranks` ranks. Figures are compared where rounding does not decide.
void expect_equal(const Trial& trial, int ranks, int64_t steps, const Results& want,
                  double gradients, double losses) {
  run_on_threads(ranks, [&](Group& world) {
    const std::string where = join(trial.variant.name, " on ", ranks, " ranks");
    Job job(trial, world);
    const std::vector<double> token_losses = job.token_losses();
    if (world.rank() == 0) {
      for (size_t i = 0; i < token_losses.size(); ++i) {
        EXPECT_NEAR(token_losses[i], want.token_losses[i], losses * want.token_losses[i]);
      }
    }
    for (int64_t step = 0; step < steps; ++step) {
      const double loss = job.backward(step), right = want.losses[static_cast<size_t>(step)];
      EXPECT_NEAR(loss, right, losses * right) << where << ", step " << step;
      if (step == 0) expect_gradients(job, want, gradients);
      job.update(step);
      if (step > 0) continue;
      const std::vector<Reading> readings = job.readings();
      if (trial.type == DType::kF64) expect_readings(readings, want.readings);
    }
  });
}

const Case kVariants[] = {
    {"linear"},
    {"adaptive_feature",
     [](CmollmKeys& keys, Gpt2Options&) {
       keys.variant = GateVariant::kAdaptive;
       keys.gate_site = GateSite::kFeature;
     }},
    {"context_aware_branch_erf",
     [](CmollmKeys& keys, Gpt2Options& o) {
       keys.variant = GateVariant::kContextAware;
       keys.mix_order = MixOrder::kBranch;
       o.gelu = GeluForm::kErf;
     }},
    {"multi_head_recompute",
     [](CmollmKeys& keys, Gpt2Options& o) {
       keys.variant = GateVariant::kMultiHead;
       o.recompute = true;
     }},
    {"simple_mix_post",
     [](CmollmKeys& keys, Gpt2Options&) {
       keys.variant = GateVariant::kSimple;
       keys.mix = MixPoint::kPost;
     }},
};

class StreamParallel : public testing::TestWithParam<std::tuple<Case, StreamLayout>> {
 protected:
  [[nodiscard]] Trial trial(DType type) const {
    return {std::get<0>(GetParam()), std::get<1>(GetParam()), type};
  }
};

TEST_P(StreamParallel, IsOneRankInFloat64) {
  constexpr int64_t kSteps = 20;
  const Results want = alone(trial(DType::kF64), kSteps);
  EXPECT_LT(want.losses.back(), want.losses.front());
  for (const int ranks : {2, 3, 4}) {
    expect_equal(trial(DType::kF64), ranks, kSteps, want, 1e-10, 1e-9);
  }
}

TEST_P(StreamParallel, IsOneRankInFloat32) {
  constexpr int64_t kSteps = 20;
  const Results want = alone(trial(DType::kF32), kSteps);
  for (const int ranks : {2, 4}) {
    expect_equal(trial(DType::kF32), ranks, kSteps, want, test::kModelF32.relative,
                 test::kLayouts.relative);
  }
}

TEST_P(StreamParallel, IsNearOneRankInBf16) {
  constexpr int64_t kSteps = 5;
  const Results want = alone(trial(DType::kBF16), kSteps);
  for (const int ranks : {2, 4}) {
    expect_equal(trial(DType::kBF16), ranks, kSteps, want,
                 test::op_tolerance(DType::kBF16).relative, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StreamParallel,
                         testing::Combine(testing::ValuesIn(kVariants),
                                          testing::Values(StreamLayout::kGather,
                                                          StreamLayout::kSlice)),
                         [](const auto& c) {
                           const bool slice = std::get<1>(c.param) == StreamLayout::kSlice;
                           return join(std::get<0>(c.param).name, slice ? "_slice" : "_gather");
                         });

// Copies of the input, which stay whole.
const Case kCopies[] = {
    {"pipeline", [](CmollmKeys& keys, Gpt2Options&) { keys.mode = StreamMode::kPipeline; }},
    {"pipeline_spans",
     [](CmollmKeys& keys, Gpt2Options& o) {
       keys.mode = StreamMode::kPipeline;
       keys.span = 1;
       keys.agg = Aggregator::kLinear;
       keys.variant = GateVariant::kContextAware;
       o.recompute = true;
     },
     false, true},
    {"parascale", [](CmollmKeys&, Gpt2Options&) {}, true},
};

INSTANTIATE_TEST_SUITE_P(Copies, StreamParallel,
                         testing::Combine(testing::ValuesIn(kCopies),
                                          testing::Values(StreamLayout::kGather)),
                         [](const auto& c) { return std::string(std::get<0>(c.param).name); });

// Rows that travel in several chunks.
TEST(StreamParallelChunks, AreOneRank) {
  for (const StreamLayout layout : {StreamLayout::kGather, StreamLayout::kSlice}) {
    const Trial trial{kVariants[0], layout, DType::kF64, 2 * 256 + 1};
    ASSERT_LT(chunk_rows(trial.tokens), trial.tokens);
    const Results want = alone(trial, 1);
    // The probe has a few rows of each sequence either way.
    expect_equal(trial, 3, 1, want, 1e-9, 1e-9);
  }
}

// What the comparison is worth: streams in the wrong order show.
TEST(StreamParallelFault, StreamsOfTheWrongRankShow) {
  const Results want = alone({kVariants[0]}, 1);
  for (const StreamLayout layout : {StreamLayout::kGather, StreamLayout::kSlice}) {
    run_on_threads(2, [&](Group& world) {
      Trial trial{kVariants[0], layout};
      trial.swapped = layout == StreamLayout::kGather;
      Job job(trial, world);
      const double difference = std::abs(job.backward(0) - want.losses[0]) / want.losses[0];
      // Slices that are swapped in all three tensors are the same function, but not the same split.
      EXPECT_EQ(difference > 1e-7, trial.swapped);
    });
  }
}

// At first the mean of streams is all that counts, in whatever order they are.
TEST(StreamParallelFault, CopiesOfTheWrongRankShow) {
  constexpr int64_t kSteps = 3;
  for (const Case& copies : kCopies) {
    const Results want = alone({copies}, kSteps);
    run_on_threads(2, [&](Group& world) {
      Trial trial{copies};
      trial.swapped = true;
      Job job(trial, world);
      double difference = 0;
      for (int64_t step = 0; step < kSteps; ++step) {
        difference = std::abs(job.backward(step) - want.losses.back()) / want.losses.back();
        job.update(step);
      }
      EXPECT_GT(difference, test::kLayoutsF64.relative) << copies.name;
    });
  }
}

}  // namespace
}  // namespace anabranch
