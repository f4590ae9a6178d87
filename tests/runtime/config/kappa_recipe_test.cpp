#include "runtime/config/kappa_recipe.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/config/validate.h"
#include "runtime/models/registry.h"
#include "runtime/rates.h"
#include "tests/support/refusal.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

Config config_of(const std::string& preset, std::vector<std::string> sets = {}) {
  sets.insert(sets.begin(), {"data.path=d", "model.preset=" + preset});
  return parse_config("", "c.yaml", sets);
}

std::string refusal(const std::string& preset, const std::vector<std::string>& sets) {
  return test::refusal([&] { validate(config_of(preset, sets)); });
}

// Width, heads, hidden width, experts, mixtures, and all parameters without kappa in billions.
struct Sizes {
  int64_t depth, width, heads, ffn, experts, mixtures;
  double parameters;
};

TEST(KappaRecipe, DepthSetsEverySize) {
  for (const Sizes& want :
       {Sizes{8, 768, 6, 3072, 64, 6, 2.902}, Sizes{10, 1024, 8, 4096, 32, 8, 3.523},
        Sizes{12, 1152, 9, 4608, 32, 8, 4.507}, Sizes{14, 1408, 11, 5632, 16, 10, 4.428},
        Sizes{16, 1536, 12, 6144, 16, 2, 1.957}, Sizes{20, 1920, 15, 7680, 16, 2, 3.262},
        Sizes{24, 2304, 18, 9216, 16, 2, 5.007}, Sizes{28, 2688, 21, 10752, 16, 2, 7.247}}) {
    const Config c = config_of("kappa-paper",
                               {"model.depth=" + std::to_string(want.depth), "model.kappa=false"});
    const ModelConfig& m = c.model;
    EXPECT_EQ(m.layers, want.depth);
    EXPECT_EQ(m.width, want.width);
    EXPECT_EQ(m.heads, want.heads);
    EXPECT_EQ(m.ffn_width, want.ffn);
    EXPECT_EQ(m.context, 2048);
    EXPECT_EQ(m.kappa.experts, want.experts);
    const std::vector<bool> mixture = mixture_layers(m.kappa, m.layers);
    EXPECT_EQ(std::ranges::count(mixture, true), want.mixtures);
    EXPECT_EQ(std::ranges::find(mixture, true) - mixture.begin(),
              want.depth < 16 ? 2 : want.depth / 2 - 1);
    const auto parameters = static_cast<double>(make_model(c, 32768)->cost().parameters);
    EXPECT_NEAR(parameters / 1e9, want.parameters, 6e-4) << want.depth;
    validate(c);
  }
}

// What the paper says, and where its authors' program differs.
TEST(KappaRecipe, PaperAndAuthorsDifferWhereTheyDo) {
  const Config paper = config_of("kappa-paper"), authors = config_of("kappa-authors");
  EXPECT_EQ(paper.model.kappa.kappa_scale_alpha, 1);
  EXPECT_EQ(authors.model.kappa.kappa_scale_alpha, 0.3);
  EXPECT_EQ(authors.model.kappa.kappa_scale_b, 2);
  EXPECT_EQ(authors.model.kappa.kappa_router_grad, 0.1);
  EXPECT_EQ(paper.model.kappa.balance, 1e-3);
  EXPECT_EQ(authors.model.kappa.balance, 5e-4);
  EXPECT_EQ(config_of("kappa-authors", {"model.kappa=false"}).model.kappa.balance, 1e-3);
  EXPECT_EQ(config_of("kappa-authors", {"model.balance=0.5"}).model.kappa.balance, 0.5);
  EXPECT_EQ(authors.model.kappa.balance_first, 2);
  EXPECT_EQ(authors.model.kappa.balance_steps, 500);
  EXPECT_EQ(paper.model.kappa.z_form, ZLossForm::kPlain);
  EXPECT_EQ(authors.model.kappa.z_form, ZLossForm::kDemeaned);
  EXPECT_EQ(authors.model.kappa.z_input_grad, 0.1);
  EXPECT_EQ(paper.model.kappa.capacity_train, 0);
  EXPECT_EQ(authors.model.kappa.capacity_train, 1);
  EXPECT_EQ(authors.model.kappa.capacity_eval, 3);
  EXPECT_EQ(paper.optim.polar_steps, 12);
  EXPECT_EQ(authors.optim.polar_steps, 5);
  EXPECT_EQ(paper.optim.matrix_scale, MatrixScale::kAspect);
  EXPECT_EQ(authors.optim.matrix_scale, MatrixScale::kRms);
  EXPECT_FALSE(paper.optim.kappa_scaled);
  EXPECT_TRUE(authors.optim.kappa_scaled);
  EXPECT_EQ(authors.train.budget, Budget::kAuthors);
  EXPECT_EQ(authors.train.steps, 11303);
}

Param param_of(Role role, Owner owner = Owner::kAdamw) {
  Param w("w", {2, 2}, Init::constant(0), true);
  w.role = role;
  w.owner = owner;
  return w;
}

// The rates of 12 and 8 layers, worked out by hand.
TEST(KappaRecipe, RatesOfTheFirstStep) {
  const Config twelve = config_of("kappa-paper"),
               eight = config_of("kappa-paper", {"model.depth=8"});
  const auto lr = [](const Config& c, Role role, Owner owner = Owner::kAdamw) {
    return Rates(c).of(param_of(role, owner), 0).lr;
  };
  EXPECT_NEAR(lr(twelve, Role::kEmbedding), 0.245, 1e-4);
  EXPECT_NEAR(lr(twelve, Role::kHead), 0.00327, 5e-6);
  EXPECT_EQ(lr(twelve, Role::kBody, Owner::kMatrix), 0.01);
  EXPECT_NEAR(lr(eight, Role::kEmbedding), 0.3 * 0.7071, 1e-5);
  EXPECT_NEAR(lr(eight, Role::kInputResidual), 0.5 * 0.7071, 1e-4);
  const Rate matrix = Rates(eight).of(param_of(Role::kBody, Owner::kMatrix), 0);
  EXPECT_NEAR(matrix.lr, 0.007071, 1e-6);
  EXPECT_NEAR(matrix.weight_decay, 0.1125, 1e-12);
  EXPECT_EQ(matrix.beta1, 0.95);
}

// alpha and b stand still for 1131 of 11303 steps and then rise over 1000; the authors' rate
// follows width and the common fall too.
TEST(KappaRecipe, CourseOfKappa) {
  const Param kappa = param_of(Role::kKappa);
  const Rates paper(config_of("kappa-paper")), authors(config_of("kappa-authors"));
  EXPECT_TRUE(paper.of(kappa, 1130).frozen);
  EXPECT_FALSE(paper.of(kappa, 1131).frozen);
  EXPECT_NEAR(paper.of(kappa, 2130).lr, 0.12, 1e-12);
  EXPECT_NEAR(paper.of(kappa, 11302).lr, 0.06, 1e-5);
  EXPECT_NEAR(authors.of(kappa, 2130).lr, 0.12 * std::sqrt(768.0 / 1152), 1e-12);
  EXPECT_NEAR(authors.of(kappa, 11302).lr, 0, 1e-5);
}

TEST(KappaRecipe, DumpReadsBackEqual) {
  for (const char* preset : {"kappa-paper", "kappa-authors"}) {
    const Config config = config_of(preset, {"model.depth=20", "model.kappa_b=false"});
    const std::string text = dump_config(config);
    EXPECT_EQ(parse_config(text, "c.yaml"), config) << text;
    EXPECT_THAT(text, HasSubstr("\n  kappa_b: false                  # default true\n"));
    EXPECT_THAT(text, HasSubstr("\n  experts: 16\n"));  // the recipe's own
    EXPECT_THAT(text, HasSubstr("\n  embedding_lr: 0.3\n"));
  }
}

TEST(KappaRecipe, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refusal("kappa-paper", {}), "accepted");
  EXPECT_THAT(refusal("kappa-paper", {"model.depth=11"}),
              HasSubstr("model.depth 11 is none of model.preset kappa-paper, which has 8, 10"));
  EXPECT_EQ(refusal("kappa-paper", {"train.micro_batch=8"}), "accepted");  // a pool of four ranks
  EXPECT_THAT(refusal("kappa-paper", {"train.micro_batch=12"}),
              HasSubstr("train.micro_batch 12 and model.pool_sequences 32"));
  EXPECT_THAT(refusal("kappa-authors", {"model.top_k=64"}), HasSubstr("model.top_k 64"));
  EXPECT_THAT(
      refusal("kappa-paper", {"model.type=gpt2", "train.steps=1", "train.batch_tokens=2048"}),
      HasSubstr("model.preset kappa-paper is of model.type kappa_moe, and model.type is gpt2"));
  EXPECT_THROW((void)config_of("kappa-paper", {"model.depth=x"}), Error);
}

}  // namespace
}  // namespace anabranch
