// Experts on the ranks of a group, and pools over several ranks: every number is that of one rank.

#include <map>
#include <mutex>

#include "core/nn/init.h"
#include "parallel/grad_reducer.h"
#include "runtime/models/kappa_moe.h"
#include "runtime/models/moep_msit.h"
#include "runtime/training_state.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kTokens = 7, kVocabulary = 19;
constexpr int64_t kSequences = 12;  // of a step, whatever the ranks: one micro-batch each
constexpr int kSteps = 3;

using Make = std::function<std::unique_ptr<Model>(const Regions& regions)>;

struct Layout {
  int ranks = 1, model = 1, pool = 1;
};

// What a training run comes to, put together from all ranks.
struct Outcome {
  std::vector<double> losses, auxiliary, norms;          // of each step
  std::vector<double> tokens;                            // causal losses before the first step
  std::map<std::string, std::vector<double>> gradients;  // of the first step
  std::map<std::string, std::vector<double>> weights;    // after the last
  std::map<std::string, std::vector<double>> buffers;
  std::vector<Reading> readings;  // of the last step
};

// Sequences whose rows have no equal scores but for rounding, which would then decide who is
// chosen: they begin with tokens of their own, and with two different ones.
Tensor ids_of(int64_t step) {
  Tensor ids({kSequences, kTokens}, DType::kI32);
  for (int64_t i = 0; i < ids.count(); ++i) {
    const uint32_t word = philox(static_cast<uint64_t>(step) + 11, static_cast<uint64_t>(i))[0];
    int32_t& id = ids.data<int32_t>()[i];
    id = static_cast<int32_t>(word % kVocabulary);
    if (i % kTokens == 0) id = static_cast<int32_t>((i / kTokens + 5 * step) % kVocabulary);
    if (i % kTokens == 1 && id == ids.data<int32_t>()[i - 1]) id = (id + 1) % int32_t{kVocabulary};
  }
  return ids;
}

// Puts this rank's part of a tensor where it belongs; copies must agree.
void put(std::map<std::string, std::vector<double>>& to, const Param& w, const Tensor& part) {
  const bool fresh = !to.contains(w.name);
  std::vector<double>& whole = to[w.name];
  if (fresh) whole.assign(static_cast<size_t>(w.global_shape.count()), std::nan(""));
  const std::vector<double> values = test::values(part);
  w.part().runs(0, part.count(), [&](int64_t here, int64_t there, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      double& at = whole[static_cast<size_t>(there + i)];
      const double value = values[static_cast<size_t>(here + i)];
      EXPECT_TRUE(std::isnan(at) || at == value) << w.name << " differs between ranks";
      at = value;
    }
  });
}

class Rank {
 public:
  Rank(const Make& make, const Layout& layout, Group& world, Outcome& outcome, std::mutex& lock)
      : world_(world),
        mesh_(world, {layout.ranks / layout.model, layout.model, layout.pool}),
        outcome_(outcome),
        lock_(lock) {
    Regions regions;
    if (layout.model > 1) regions.model = &mesh_.model();
    if (layout.pool > 1) regions.pool = &mesh_.pool();
    model_ = make(regions);
    config_.optim.lr = 1e-2;
    config_.optim.eps = 1e-4;  // a gradient of nothing but rounding moves nothing
    config_.optim.schedule = ScheduleForm::kConstant;
  }

  void run() {
    TrainingState state(*model_, config_, {400, mesh_.all().size(), mesh_.data().size()}, nullptr);
    GradReducer reducer(state.store(), mesh_);
    Measures measures(model_->measure_places(kSequences), model_->detail_places());
    measures.detailed = true;
    note_token_losses();
    for (int step = 0; step < kSteps; ++step) {
      std::ranges::fill(measures.sums(), 0.0);
      state.store().forget_grads();
      const double loss = backward(step, reducer, measures);
      reducer.finish();
      add_up(measures.sums());
      const double norm = state.optimizer().grad_norm(mesh_);
      note(step, loss, norm, measures);
      state.optimizer().step(step, norm);
      model_->end_step(measures);
    }
    note_end(measures);
  }

 private:
  [[nodiscard]] MicroBatch batch_of(int step) const {
    const int64_t B = kSequences / world_.size(), first = world_.rank() * B;
    const Tensor ids = ids_of(step), targets = ids_of(step + 100);
    const Shape shape{B, kTokens};
    return {ids.view(first * kTokens, shape), targets.view(first * kTokens, shape), first};
  }

  double backward(int step, GradReducer& reducer, Measures& measures) {
    Tape tape;
    reducer.arm();
    tape.on_grad_ready = [&](Param& w) { reducer.ready(w); };
    const StepKey key{1, step, &measures, 0};
    const Var loss =
        model_->loss(tape, batch_of(step), key, 1.0 / static_cast<double>(kSequences * kTokens));
    tape.backward(loss);
    return test::values(loss.value()).front();
  }

  void add_up(std::span<double> sums) {
    const Tensor all = Tensor::of<double>({std::ssize(sums)}, {sums.begin(), sums.end()});
    world_.all_reduce_sum(all).wait();
    std::ranges::copy(all.span<double>(), sums.begin());
  }

  void note_token_losses() {
    const Tensor losses = model_->token_losses(batch_of(0));
    Tensor all({losses.count() * world_.size()}, losses.dtype());
    world_.all_gather(all, losses).wait();
    const std::scoped_lock hold(lock_);
    outcome_.tokens = test::values(all);
  }

  void note(int step, double loss, double norm, const Measures& measures) {
    double sum = loss;
    add_up({&sum, 1});
    const std::scoped_lock hold(lock_);
    if (world_.rank() == 0) {
      outcome_.losses.push_back(sum);
      outcome_.auxiliary.push_back(measures.at(0));
      outcome_.norms.push_back(norm);
    }
    if (step > 0) return;
    model_->visit([&](Param& w) { put(outcome_.gradients, w, w.grad); });
  }

  void note_end(const Measures& measures) {
    const std::vector<Reading> readings = model_->readings(measures);
    const std::scoped_lock hold(lock_);
    model_->visit([&](Param& w) { put(outcome_.weights, w, w.master); });
    model_->visit_buffers([&](Buffer& b) {
      const bool first = outcome_.buffers.emplace(b.name, test::values(b.value)).second;
      EXPECT_TRUE(first || outcome_.buffers[b.name] == test::values(b.value)) << b.name;
    });
    if (world_.rank() == 0) outcome_.readings = readings;
  }

  Group& world_;
  Mesh mesh_;
  Outcome& outcome_;
  std::mutex& lock_;
  Config config_;
  std::unique_ptr<Model> model_;
};

Outcome train(const Make& make, const Layout& layout) {
  Outcome outcome;
  std::mutex lock;
  run_on_threads(layout.ranks, [&](Group& world) {
    set_thread_count(1);
    world.set_deadline(60);
    Rank(make, layout, world, outcome, lock).run();
  });
  return outcome;
}

void expect_all(const std::map<std::string, std::vector<double>>& got,
                const std::map<std::string, std::vector<double>>& want, const std::string& what,
                double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const auto& [name, values] : want) {
    for (const double v : values) largest = std::max(largest, std::abs(v));
  }
  for (const auto& [name, values] : want) {
    ASSERT_TRUE(got.contains(name)) << what << " of " << name;
    const std::vector<double>& other = got.at(name);
    ASSERT_EQ(other.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(other[i], values[i], tolerance * (std::abs(values[i]) + largest))
          << what << " of " << name << "[" << i << "]";
    }
  }
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 const std::string& what, double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << "[" << i << "]";
  }
}

// Every number of a run on these ranks is that of one rank.
//
//   tokens  how far apart the causal losses of tokens may be
void expect_that_of_one_rank(const Make& make, const Outcome& want, const Layout& layout,
                             double tokens = 0) {
  SCOPED_TRACE(join(layout.ranks, " ranks, model ", layout.model, ", pool ", layout.pool));
  constexpr double kTight = 1e-10;
  const Outcome got = train(make, layout);
  expect_near(got.tokens, want.tokens, "token", tokens);
  expect_near(got.losses, want.losses, "loss", kTight);
  expect_near(got.auxiliary, want.auxiliary, "auxiliary loss", kTight);
  expect_near(got.norms, want.norms, "norm", kTight);
  expect_all(got.gradients, want.gradients, "gradient", kTight);
  expect_all(got.weights, want.weights, "weight", kTight);
  expect_all(got.buffers, want.buffers, "buffer", kTight);
  ASSERT_EQ(got.readings.size(), want.readings.size());
  for (size_t i = 0; i < want.readings.size(); ++i) {
    const Reading &a = got.readings[i], &b = want.readings[i];
    EXPECT_TRUE(a.metric == b.metric && a.layer == b.layer && a.part == b.part);
    EXPECT_NEAR(a.value, b.value, 1e-5 * (1 + std::abs(b.value)))
        << "figure " << static_cast<int>(a.metric) << " of " << a.part;
  }
}

// With weights that are nowhere zero, so that every part has a say.
std::unique_ptr<Model> filled(std::unique_ptr<Model> model) {
  model->visit([](Param& w) {
    if (w.init.kind == Init::Kind::kNormal || w.init.kind == Init::Kind::kUniform) {
      w.init = Init::normal(0.4F);
    } else if (w.global_shape.rank() > 1) {
      w.init = Init::normal(0.5F);
    } else {
      w.init = Init::constant(0.7F);
    }
  });
  return model;
}

Make kappa(const KappaKeys& keys, bool recompute = false, DType type = DType::kF64) {
  return [=](const Regions& regions) {
    KappaOptions o;
    o.layers = 3;
    o.width = 12;
    o.heads = 2;
    o.context = kTokens;
    o.vocabulary = kVocabulary;
    o.ffn_width = 9;
    o.mixture = {true, false, true};
    o.recompute = recompute;
    o.compute = type;
    return filled(std::make_unique<KappaMoe>(o, keys, regions));
  };
}

KappaKeys kappa_keys(int64_t pool_sequences) {
  KappaKeys keys;
  keys.experts = 5;
  keys.balance = 0.3;
  keys.z_loss = 0.1;
  keys.z_input_grad = 0.5;
  keys.l2_alpha = 0.2;
  keys.l2_b = 0.1;
  keys.pool_sequences = pool_sequences;
  return keys;
}

const std::vector<Layout> kOnePoolEach{{2, 1, 1}, {2, 2, 1}, {4, 2, 1}, {4, 4, 1}};

// Pools of three sequences, as many as the ranks of four have each.
TEST(ExpertParallel, KappaDropless) {
  for (const bool recompute : {false, true}) {
    const Make make = kappa(kappa_keys(3), recompute);
    const Outcome want = train(make, {});
    for (const Layout& layout : kOnePoolEach) expect_that_of_one_rank(make, want, layout);
  }
  const Make make = kappa(kappa_keys(1));
  expect_that_of_one_rank(make, train(make, {}), {3, 3, 1});
}

TEST(ExpertParallel, KappaInLowerPrecision) {
  for (const auto& [type, tolerance] : {std::pair(DType::kF32, 1e-5), {DType::kBF16, 1e-2}}) {
    const Make make = kappa(kappa_keys(3), false, type);
    const Outcome want = train(make, {}), got = train(make, {4, 2, 1});
    expect_near(got.tokens, want.tokens, "token", tolerance);
    expect_near(got.losses, want.losses, "loss", tolerance);
    expect_near(got.norms, want.norms, "norm", 3 * tolerance);
  }
}

TEST(ExpertParallel, KappaWithoutSlopes) {
  KappaKeys keys = kappa_keys(1);
  keys.kappa_alpha = false;
  const Make no_alpha = kappa(keys);
  expect_that_of_one_rank(no_alpha, train(no_alpha, {}), {4, 2, 1});
  keys.kappa = false;
  const Make plain = kappa(keys);
  expect_that_of_one_rank(plain, train(plain, {}), {2, 2, 1});
}

TEST(ExpertParallel, KappaPoolsOnSeveralRanks) {
  for (const double capacity : {0.0, 0.6}) {
    KappaKeys keys = kappa_keys(12);
    keys.capacity_train = capacity;
    const Make all = kappa(keys);
    const Outcome of_all = train(all, {});
    for (const Layout& layout : std::vector<Layout>{{2, 1, 2}, {2, 2, 2}, {3, 3, 3}, {4, 2, 4}}) {
      expect_that_of_one_rank(all, of_all, layout);
    }
    keys.pool_sequences = 6;
    const Make halves = kappa(keys);
    const Outcome of_halves = train(halves, {});
    for (const Layout& layout : std::vector<Layout>{{2, 2, 1}, {4, 4, 2}, {4, 1, 2}}) {
      expect_that_of_one_rank(halves, of_halves, layout);
    }
  }
}

struct MoepCase {
  const char* name;
  Selection select;
  SlotOrder order = SlotOrder::kTime;
  bool recompute = false;
};

Make moep(const MoepCase& c, int64_t pool_sequences) {
  return [=](const Regions& regions) {
    MoepOptions o;
    o.layers = 2, o.width = 8, o.heads = 2, o.context = kTokens, o.vocabulary = kVocabulary;
    o.ffn_width = 10, o.expert_ffn_width = 6;
    o.compute = DType::kF64;
    o.recompute = c.recompute;
    o.keys.windows = {5, 3, 2, 4};
    o.keys.expert_width = 12, o.keys.expert_heads = 3;
    o.keys.capacity = 1.5;
    o.keys.select = c.select;
    o.keys.aux_alpha = 0.1;
    o.keys.order = c.order;
    if (c.order == SlotOrder::kAffinity) o.keys.window = SlotPosition::kCompact;
    o.keys.pool_sequences = pool_sequences;
    auto model = filled(std::make_unique<MoepMsit>(o, regions));
    model->visit_buffers([](Buffer& b) {
      b.value.copy_from(b.value.count() == 1 ? Tensor::of<double>({1}, {1})
                                             : Tensor::of<double>({4}, {0.3, 0.25, 0.28, 0.2}));
    });
    return model;
  };
}

class Moep : public testing::TestWithParam<MoepCase> {};

TEST_P(Moep, IsThatOfOneRank) {
  const MoepCase& c = GetParam();
  // The attention of window experts sums keys in blocks, which begin elsewhere.
  const double tokens = 1e-13;
  const Make one_each = moep(c, 3);
  const Outcome of_one_each = train(one_each, {});
  for (const Layout& layout : kOnePoolEach) {
    expect_that_of_one_rank(one_each, of_one_each, layout, tokens);
  }
  if (c.select == Selection::kEcSeq) {
    return expect_that_of_one_rank(one_each, of_one_each, {3, 3, 1}, tokens);
  }
  const Make all = moep(c, 12);
  const Outcome of_all = train(all, {});
  for (const Layout& layout : std::vector<Layout>{{2, 2, 2}, {3, 3, 3}, {4, 2, 4}, {3, 1, 3}}) {
    expect_that_of_one_rank(all, of_all, layout, tokens);
  }
  const Make halves = moep(c, 6);
  expect_that_of_one_rank(halves, train(halves, {}), {4, 4, 2}, tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Moep,
    testing::Values(MoepCase{"ec_batch", Selection::kEcBatch},
                    MoepCase{"ec_batch_recomputed", Selection::kEcBatch, SlotOrder::kTime, true},
                    MoepCase{"ec_batch_affinity", Selection::kEcBatch, SlotOrder::kAffinity},
                    MoepCase{"ec_seq", Selection::kEcSeq},
                    MoepCase{"threshold", Selection::kThreshold},
                    MoepCase{"predictor", Selection::kPredictor},
                    MoepCase{"token_choice", Selection::kTokenChoice}),
    [](const auto& of) { return std::string(of.param.name); });

// An expert that attends over a pool needs all of it.
TEST(ExpertParallel, RefusesPoolsThatAttendAcrossRanks) {
  run_on_threads(2, [](Group& g) {
    MoepOptions o;
    o.keys.windows = {4, 4};
    o.keys.segments = SegmentScope::kPool;
    EXPECT_NO_THROW(MoepMsit(o, {}));
    EXPECT_THROW(MoepMsit(o, {.model = &g}), Error);
    EXPECT_THROW(MoepMsit(o, {.pool = &g}), Error);
  });
}

}  // namespace
}  // namespace anabranch
