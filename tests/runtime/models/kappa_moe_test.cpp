#include "runtime/models/kappa_moe.h"

#include <algorithm>
#include <set>

#include "core/nn/init.h"
#include "runtime/models/registry.h"
#include "tests/runtime/models/family_case.h"

namespace anabranch {
namespace {

constexpr const char* kFile = "kappa.h5";

// `mixture` has a '1' for every layer with experts.
struct Case {
  const char* name;
  const char* mixture;
};

KappaOptions options_of(const test::Reference& ref, const Case& c, DType type) {
  KappaOptions o;
  o.layers = ref.count("n_layer", c.name);
  o.width = ref.count("n_embd", c.name);
  o.heads = ref.count("n_head", c.name);
  o.context = ref.count("context", c.name);
  o.ffn_width = ref.count("ffn", c.name);
  o.vocabulary = ref.count("vocab_size", c.name);
  for (const char* kind = c.mixture; *kind != 0; ++kind) o.mixture.push_back(*kind == '1');
  o.compute = type;
  return o;
}

KappaKeys keys_of(const test::Reference& ref, const Case& c) {
  const std::string name = c.name;
  KappaKeys k;
  k.experts = ref.count("experts", name);
  k.top_k = ref.count("top_k", name);
  k.kappa = ref.count("kappa", name) != 0;
  k.kappa_alpha = ref.count("alpha", name) != 0;
  k.kappa_b = ref.count("b", name) != 0;
  k.kappa_range = ref.number("kappa_max", name);
  k.kappa_scale_alpha = ref.number("kappa_scale_s", name);
  k.kappa_scale_b = ref.number("kappa_scale_b", name);
  k.kappa_router_grad = ref.number("router_grad_scale", name);
  k.l2_alpha = ref.number("l2_alpha", name);
  k.l2_b = ref.number("l2_b", name);
  k.balance = ref.number("balance_weight", name);
  k.pool_sequences = ref.count("batch", name);
  k.z_loss = ref.number("z_weight", name);
  k.z_form = ref.text("z_form", name) == "plain" ? ZLossForm::kPlain : ZLossForm::kDemeaned;
  k.z_input_grad = ref.number("z_input_grad_scale", name);
  // The recorded logits and losses are those of training.
  k.capacity_train = k.capacity_eval = ref.number("capacity_factor", name);
  k.softcap = ref.number("softcap", name);
  return k;
}

class KappaAgainstPyTorch : public testing::TestWithParam<Case> {};

TEST_P(KappaAgainstPyTorch, LogitsLossesAndGradients) {
  const test::Reference ref(kFile);
  const Case& c = GetParam();
  const Config config = test::adamw_of_references();
  for (const DType type : {DType::kF64, DType::kF32}) {
    for (const bool recompute : {false, true}) {
      const auto make = [&](DType compute) {
        KappaOptions o = options_of(ref, c, compute);
        o.recompute = recompute;
        return std::make_unique<KappaMoe>(o, keys_of(ref, c));
      };
      test::FamilyCase recorded(ref, c.name, make, type, config);
      EXPECT_EQ(recorded.model().cost().parameters, ref.count("n_parameters", c.name));
      recorded.expect_all();
    }
  }
}

// Three rows, two experts each: the shares, what fell out, and how sure the router was.
TEST(RouterMeasures, ReadWhatARouterDid) {
  const RouterMeasures figures(2, 3);
  Measures sums(figures.places());
  sums.detailed = true;
  const Tensor logits = Tensor::of<double>({2, 3}, {0, 0, -1e9, 0, -1e9, -1e9});
  const TopKRoute route = top_k_route(logits, {.k = 1, .capacity = 1});
  figures.add(sums, 1, logits, route);
  std::vector<Reading> readings;
  figures.read(readings, sums, 0);
  EXPECT_TRUE(readings.empty());
  figures.read(readings, sums, 1);
  ASSERT_EQ(readings.size(), 5U);
  EXPECT_EQ(readings[0].value, 1);    // both chose expert 0
  EXPECT_EQ(readings[3].value, 0.5);  // which has one slot
  EXPECT_NEAR(readings[4].value, std::log(2.0) / 2 / std::log(3.0), 1e-12);
  EXPECT_EQ(positive_mean(Tensor::of<double>({3}, {-1, 2, 4})), 3);
}

// With a capacity later tokens push out second choices: the headline loss is the dropless one.
TEST(KappaMoe, ACapacityInEvaluationIsNoHeadline) {
  const test::Reference ref(kFile);
  const Case paper{"paper", "001"};
  const Config config = test::adamw_of_references();
  const auto losses = [&](double capacity, Routing routing) {
    const auto make = [&](DType compute) {
      KappaKeys keys = keys_of(ref, paper);
      keys.capacity_eval = capacity;
      return std::make_unique<KappaMoe>(options_of(ref, paper, compute), keys);
    };
    test::FamilyCase c(ref, paper.name, make, DType::kF64, config);
    EXPECT_EQ(c.model().looks_ahead(), capacity > 0);
    const MicroBatch batch{ref.integers("paper/tokens"), ref.integers("paper/targets")};
    return test::values(c.model().token_losses(batch, routing));
  };
  const auto dropless = losses(0, Routing::kCausal);
  EXPECT_EQ(losses(0.2, Routing::kCausal), dropless);
  EXPECT_NE(losses(0.2, Routing::kAsTrained), dropless);
}

// Five steps of the paper's optimizers: Aurora owns the matrices, AdamW the rest at rates of their
// own.
TEST(KappaMoe, FiveStepsOfAuroraAndAdamw) {
  const test::Reference ref(kFile);
  const Case paper{"paper", "001"};
  Config config;
  OptimConfig& o = config.optim;
  o.schedule = ScheduleForm::kConstant;
  o.beta1 = 0.8;
  o.beta2 = 0.95;
  o.eps = 1e-10;
  o.weight_decay = 0;
  o.clip = 0;
  o.embedding_lr = 0.3;
  o.head_lr = 0.004;
  o.residual_lr = 0.005;
  o.input_residual_lr = 0.5;
  o.input_residual_beta1 = 0.96;
  o.kappa_lr = o.kappa_lr_end = 0.12;
  o.matrix = MatrixOptimizer::kAurora;
  o.matrix_lr = 0.01;
  o.matrix_weight_decay = 0.05;
  const auto make = [&](DType compute) {
    return std::make_unique<KappaMoe>(options_of(ref, paper, compute), keys_of(ref, paper));
  };
  test::FamilyCase recorded(ref, paper.name, make, DType::kF64, config);
  recorded.expect_steps(test::kStepsF64);
}

INSTANTIATE_TEST_SUITE_P(Cases, KappaAgainstPyTorch,
                         testing::Values(Case{"paper", "001"}, Case{"kappa_off", "011"},
                                         Case{"no_alpha", "001"}, Case{"no_b", "001"},
                                         Case{"large_aux", "101"}, Case{"authors", "001"},
                                         Case{"authors_many_experts", "01"}, Case{"top1", "01"}),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(KappaMoe, CapacityOfEvaluation) {
  const test::Reference ref(kFile);
  const Config config = test::adamw_of_references();
  for (const Case& c : {Case{"authors", "001"}, Case{"authors_many_experts", "01"}}) {
    const auto make = [&](DType compute) {
      KappaKeys keys = keys_of(ref, c);
      keys.capacity_eval = ref.number("eval_capacity_factor", c.name);
      return std::make_unique<KappaMoe>(options_of(ref, c, compute), keys);
    };
    test::FamilyCase recorded(ref, c.name, make, DType::kF64, config);
    const std::string name = c.name;
    test::expect_close(recorded.model().logits(ref.integers(name + "/tokens")),
                       ref.real(name + "/eval_logits"), test::kModelF64, "logits");
  }
}

// A model with weights that are nowhere zero, so that every part has a say.
std::unique_ptr<KappaMoe> some_model(const KappaKeys& keys, DType type = DType::kF64) {
  KappaOptions o;
  o.layers = 4;
  o.width = 12;
  o.heads = 2;
  o.context = 10;
  o.vocabulary = 19;
  o.ffn_width = 9;
  o.mixture = mixture_layers(keys, o.layers);
  o.compute = type;
  auto model = std::make_unique<KappaMoe>(o, keys);
  model->visit([](Param& w) {
    w.init = w.shape.rank() == 1 ? Init::constant(0.7F) : Init::normal(0.5F);
    allocate(w, accumulator_of(w.compute) == DType::kF64 ? DType::kF64 : DType::kF32);
    initialise(w, 1);
  });
  return model;
}

Tensor some_ids(int64_t B, int64_t T) {
  Tensor ids({B, T}, DType::kI32);
  for (int64_t i = 0; i < ids.count(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>((i * i * 7 + 3 * i + 5) % 19);
  }
  return ids;
}

TEST(KappaMoe, TheFutureDoesNotMatter) {
  const auto model = some_model({});
  Tensor ids = some_ids(2, 10);
  const Tensor before = model->logits(ids);
  ids.data<int32_t>()[6] += 1;  // token 6 of the first sequence
  const Tensor after = model->logits(ids);
  const int64_t V = model->vocabulary();
  test::expect_near(after.view(0, {6 * V}), test::values(before.view(0, {6 * V})), test::kExact,
                    "before it");
  test::expect_near(after.view(10 * V, {10 * V}), test::values(before.view(10 * V, {10 * V})),
                    test::kExact, "the other sequence");
  EXPECT_NE(test::values(after.view(6 * V, {V})), test::values(before.view(6 * V, {V})));
  EXPECT_NE(test::values(after.view(9 * V, {V})), test::values(before.view(9 * V, {V})));
}

TEST(KappaMoe, DecodeEqualsLogits) {
  const auto model = some_model({});
  const int64_t B = 2, T = 10, V = model->vocabulary();
  const Tensor ids = some_ids(B, T), whole = model->logits(ids);
  DecodeState state = model->decode_state(B, T);
  const auto expect_at = [&](const Tensor& logits, int64_t b, int64_t t) {
    test::expect_close(logits.view(b * V, {V}), whole.clone("row").view((b * T + t) * V, {V}),
                       test::kModelF64, "logits");
  };
  // Prompts of 4 and 2 tokens, padded; then one token at a time.
  std::vector<int64_t> held{4, 2};
  Tensor next({B, 4}, DType::kI32);
  next.fill_zero();
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < held[static_cast<size_t>(b)]; ++t) {
      next.data<int32_t>()[b * 4 + t] = ids.data<int32_t>()[b * T + t];
    }
  }
  std::vector<int64_t> counts = held;
  while (true) {
    const Tensor logits = model->decode(next, counts, state);
    for (int64_t b = 0; b < B; ++b) expect_at(logits, b, held[static_cast<size_t>(b)] - 1);
    if (held[0] == T) break;
    next = Tensor({B, 1}, DType::kI32);
    for (int64_t b = 0; b < B; ++b) {
      next.data<int32_t>()[b] = ids.data<int32_t>()[b * T + held[static_cast<size_t>(b)]++];
    }
    counts = {1, 1};
  }
}

TEST(KappaMoe, AnExpertWithoutTokens) {
  KappaKeys keys;
  keys.experts = 40;  // 2 choices of 3 tokens
  keys.top_k = 2;
  keys.moe_first = 1;
  const auto model = some_model(keys);
  const Tensor ids = some_ids(1, 3);
  Tape tape;
  Measures measures(model->measure_places(1), model->detail_places());
  const Var loss = model->loss(tape, {ids, ids, 0}, {1, 0, &measures}, 1.0 / 3);
  tape.backward(loss);
  EXPECT_GT(measures.at(0), 0);
  model->visit([](Param& w) {
    if (w.name.find("experts.in") == std::string::npos) return;
    const std::vector<double> grad = test::values(w.grad);
    const auto zeros = std::ranges::count(grad, 0.0);
    EXPECT_GE(zeros, std::ssize(grad) * 34 / 40) << w.name;
    EXPECT_LT(zeros, std::ssize(grad)) << w.name;
    for (const double g : grad) EXPECT_TRUE(std::isfinite(g));
  });
}

// Figures are sums over micro-batches and ranks, of those steps that report them alone.
TEST(KappaMoe, FiguresAddUp) {
  const auto model = some_model({});
  model->visit([](Param& w) {
    if (w.role == Role::kKappa) w.value.copy_from(test::random(w.shape, 7));
  });
  const Tensor ids = some_ids(2, 6);
  const auto run = [&](const Tensor& some, Measures& measures) {
    Tape tape;
    (void)model->loss(tape, {some, some, 0}, {1, 0, &measures}, 1.0 / 12);
  };
  const size_t places = model->measure_places(1), detail = model->detail_places();
  Measures at_once(places, detail), one(places, detail), other(places, detail),
      quiet(places, detail);
  at_once.detailed = one.detailed = other.detailed = true;
  run(ids, at_once);
  run(ids.view(0, {1, 6}), one);
  run(ids.view(6, {1, 6}), other);
  run(ids, quiet);
  EXPECT_EQ(quiet.sums().size(), places);
  quiet.detailed = true;
  EXPECT_TRUE(std::ranges::all_of(quiet.sums().subspan(places), [](double v) { return v == 0; }));
  for (size_t i = 0; i < one.sums().size(); ++i) one.sums()[i] += other.sums()[i];
  const auto want = model->readings(at_once), got = model->readings(one);
  ASSERT_EQ(got.size(), want.size());
  std::set<Metric> told;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i].value, want[i].value, 1e-9) << static_cast<int>(want[i].metric);
    told.insert(want[i].metric);
  }
  for (const Metric metric :
       {Metric::kExpertLoad, Metric::kExpertDrops, Metric::kRouterEntropy,
        Metric::kRouterGateCosine, Metric::kRouterGateAlignment, Metric::kInducedBiasLow,
        Metric::kInducedBiasMedian, Metric::kInducedBiasHigh, Metric::kKappaLow,
        Metric::kKappaMedian, Metric::kKappaHigh, Metric::kPositiveAlpha, Metric::kPositiveB}) {
    EXPECT_TRUE(told.contains(metric)) << static_cast<int>(metric);
  }
}

// The losses beside the main one count by a micro-batch's share of the step.
TEST(KappaMoe, MicroBatchesAddUp) {
  KappaKeys keys;
  keys.balance = 0.3;
  keys.z_loss = 0.2;
  keys.z_input_grad = 0.5;
  const auto one = some_model(keys), two = some_model(keys);
  const Tensor ids = some_ids(2, 6);
  const auto run = [&](KappaMoe& model, const Tensor& some, Measures& measures) {
    Tape tape;
    tape.backward(model.loss(tape, {some, some, 0}, {1, 0, &measures}, 1.0 / 12));
  };
  const size_t places = one->measure_places(1);
  Measures at_once(places), apart(places);
  run(*one, ids, at_once);
  run(*two, ids.view(0, {1, 6}), apart);
  run(*two, ids.view(6, {1, 6}), apart);
  EXPECT_NEAR(apart.at(0), at_once.at(0), 1e-12);
  std::vector<Tensor> want;
  one->visit([&](Param& w) { want.push_back(w.grad); });
  size_t i = 0;
  two->visit([&](Param& w) { test::expect_close(w.grad, want[i++], test::kModelF64, w.name); });
}

TEST(KappaMoe, RefusesBatchesThatAreNoPools) {
  KappaKeys keys;
  keys.pool_sequences = 2;
  const auto model = some_model(keys);
  const Tensor ids = some_ids(3, 4);
  Tape tape;
  EXPECT_THROW(static_cast<void>(model->loss(tape, {ids, ids, 0}, {}, 1)), Error);
}

TEST(KappaMoe, RunsInBf16) {
  const auto model = some_model({}, DType::kBF16);
  const Tensor ids = some_ids(2, 6);
  Tape tape;
  const Var loss = model->loss(tape, {ids, ids, 0}, {1, 0, nullptr}, 1.0 / 12);
  tape.backward(loss);
  model->visit([](Param& w) {
    double sum = 0;
    for (const double g : test::values(w.grad)) sum += g * g;
    EXPECT_TRUE(std::isfinite(sum) && sum > 0) << w.name;
  });
}

TEST(KappaMoe, OfAConfiguration) {
  const Config config = parse_config(
      "model: {type: kappa_moe, depth: 2, layers: 4, width: 16,\n"
      "  heads: 2, context: 8, experts: 4, x0_init: 0.25}\n",
      "c.yaml", {});
  const auto model = make_model(config, 32);
  std::vector<std::string> kappa;
  int64_t parameters = 0;
  model->visit([&](Param& w) {
    parameters += w.shape.count();
    if (w.role == Role::kKappa) kappa.push_back(w.name);
    if (w.name == "h.3.experts.in.weight") {
      EXPECT_EQ(w.shape, (Shape{4, 128, 16}));
      EXPECT_EQ(w.matrices, 8);
    }
    EXPECT_TRUE(w.role != Role::kInputResidual || w.init.value == 0.25F) << w.name;
    EXPECT_TRUE(w.owner == Owner::kMatrix || !w.decay) << w.name;
  });
  EXPECT_EQ(kappa, (std::vector<std::string>{"h.2.experts.alpha", "h.2.experts.b",
                                             "h.3.experts.alpha", "h.3.experts.b"}));
  EXPECT_EQ(model->cost().parameters, parameters);
}

TEST(KappaMoe, LayersWithExperts) {
  KappaKeys keys;
  keys.moe_first = 1;
  keys.moe_layers = 2;
  EXPECT_EQ(mixture_layers(keys, 4), (std::vector<bool>{false, true, true, false}));
  keys.moe_layers = 0;
  EXPECT_EQ(mixture_layers(keys, 4), (std::vector<bool>{false, true, true, true}));
  keys.sandwich = true;
  EXPECT_EQ(mixture_layers(keys, 6), (std::vector<bool>{false, false, true, true, false, false}));
}

}  // namespace
}  // namespace anabranch
