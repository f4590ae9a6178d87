// The matrix products that families say they have: counted by hand, and equal to what ModelCost
// says of the same model.
#include <map>

#include <gtest/gtest.h>

#include "runtime/models/registry.h"

namespace anabranch {
namespace {

constexpr int64_t kVocabulary = 40, kSequences = 3;

// 2 layers, C 16, H 2, T 8, F 24.
Config small(ModelType type) {
  Config c;
  c.model.type = type;
  c.model.layers = 2;
  c.model.width = 16;
  c.model.heads = 2;
  c.model.context = 8;
  c.model.ffn_width = 24;
  c.model.moep.windows = {5, 3};
  c.model.moep.expert_width = 12;
  c.model.moep.expert_heads = 2;
  c.model.moep.capacity = 1;
  return c;
}

// What a token costs: all of them, the head among the linear maps.
struct Macs {
  double linear = 0, front_end = 0, attention = 0;
};

// A family's products as hand counts of a token; its cost counts the linear ones alike. Front-ends
// have sums besides, which are no products.
void expect_products(const Config& config, const Macs& want) {
  const auto model = make_model(config, kVocabulary);
  const Products products = model->products(kSequences);
  const double tokens = static_cast<double>(kSequences * config.model.context);
  const double linear = products.macs(ProductRole::kLinear) + products.macs(ProductRole::kHead);
  EXPECT_DOUBLE_EQ(linear, tokens * want.linear);
  EXPECT_DOUBLE_EQ(products.macs(ProductRole::kFrontEnd), tokens * want.front_end);
  EXPECT_DOUBLE_EQ(products.attention_macs(), tokens * want.attention);
  EXPECT_DOUBLE_EQ(model->cost().linear_macs, want.linear);
}

constexpr double kBlock = 4 * 16 * 16 + 2 * 16 * 24;  // q, k, v, projection; in, out
constexpr double kHead = 40 * 16;
constexpr double kAttention = 2 * 2 * 16 * 4.5;  // layers, products, C, (T + 1) / 2

TEST(ProductsTest, Gpt2HasFourMapsABlockAndAHead) {
  const Config c = small(ModelType::kGpt2);
  expect_products(c, {2 * kBlock + kHead, 0, kAttention});
  const Products products = make_model(c, kVocabulary)->products(kSequences);
  ASSERT_EQ(products.linear.size(), 5U);
  const Product& in = products.linear[2];
  EXPECT_EQ(in.name, "feed-forward in");
  EXPECT_EQ((std::vector{in.rows, in.in, in.out, in.groups, in.count}),
            (std::vector<int64_t>{24, 16, 24, 1, 2}));
  EXPECT_EQ(products.linear.back().role, ProductRole::kHead);
}

TEST(ProductsTest, CmollmHasAMapForEachStreamAndItsGates) {
  Config c = small(ModelType::kCmollm);
  c.model.cmollm.streams = 4;
  c.model.cmollm.gate_heads = 4;
  const double linear = 2 * (kBlock + 3 * 16 * 24) + kHead, router = 16 * 4;
  const std::map<GateVariant, double> gates{
      {GateVariant::kLinear, 0},
      {GateVariant::kSimple, 2 * 256},
      {GateVariant::kContextAware, 2 * 256 + 2 * 16 * 4},
      {GateVariant::kMultiHead, 3 * 256},
      {GateVariant::kAdaptive, 2 * 256 + 16 * 4 + 4 * 3},
  };
  for (const auto& [variant, macs] : gates) {
    c.model.cmollm.variant = variant;
    expect_products(c, {linear, 2 * (router + macs), kAttention});
  }
  c.model.cmollm.variant = GateVariant::kMultiHead;
  c.model.cmollm.head_input = HeadInput::kSlice;
  expect_products(c, {linear, 2 * (router + 2 * 256 + 4 * 4 * 4), kAttention});
}

TEST(ProductsTest, PipelineRunsBlocksOnEveryStream) {
  Config c = small(ModelType::kCmollm);
  c.model.cmollm.mode = StreamMode::kPipeline;
  c.model.cmollm.streams = 2;
  c.model.cmollm.span = 1;
  // Of each of two spans: F and Proj; two expansions and the weights' maps.
  const double linear = 2 * 2 * kBlock + kHead + 2 * 2 * 256;
  expect_products(c, {linear, 2 * (2 * 256 + 2 * 256 + 2 * 16), 2 * kAttention});
  c.model.cmollm.agg = Aggregator::kLinear;
  expect_products(c, {linear, 2 * (2 * 256 + 2 * 2 * 16), 2 * kAttention});
  c.model.cmollm.variant = GateVariant::kSimple;
  expect_products(c, {linear, 2 * (2 * 2 * 256 + 2 * 2 * 16), 2 * kAttention});
}

TEST(ProductsTest, ParascaleRunsBlocksOnEveryStreamWithPrefixes) {
  Config c = small(ModelType::kParascale);
  c.model.parascale = {3, 5, 0.01};
  const double prefixes = 2 * 2 * 16 * 5;
  expect_products(c, {3 * 2 * kBlock + kHead, 3 * 256 + 16 * 3, 3 * (kAttention + prefixes)});
  c.model.parascale.streams = 1;
  expect_products(c, {2 * kBlock + kHead, 0, kAttention});
}

TEST(ProductsTest, AltupComputesOneBlockOfTheStream) {
  Config c = small(ModelType::kAltup);
  c.model.altup.blocks = 3;
  expect_products(c, {2 * kBlock + kHead, 0, kAttention});
  c.model.altup.recycled = false;
  expect_products(c, {2 * kBlock + 3 * kHead, 0, kAttention});
}

TEST(ProductsTest, KappaMoeHasDenseLayersAndChosenExperts) {
  Config c = small(ModelType::kKappaMoe);
  c.model.kappa.experts = 5;
  c.model.kappa.top_k = 2;
  c.model.kappa.moe_first = 1;
  const double attention = 4 * 256, dense = 3 * 16 * 24;
  // The last layer has a value gate of 16 channels, and a router.
  const double gates = 16 * 2 + 16 * 5;
  expect_products(c, {2 * attention + dense + 2 * dense + kHead, gates, kAttention});
  const Products products = make_model(c, kVocabulary)->products(kSequences);
  for (const Product& p : products.linear) {
    if (p.name != "experts in") continue;
    EXPECT_EQ((std::vector{p.rows, p.in, p.out, p.groups, p.count}),
              (std::vector<int64_t>{48, 16, 48, 5, 1}));
  }
  c.model.kappa.moe_first = 0;
  expect_products(c, {2 * attention + 4 * dense + kHead, 16 * 2 + 2 * 16 * 5, kAttention});
}

TEST(ProductsTest, MoepHasADensePartAndExpertsThatHoldRows) {
  Config c = small(ModelType::kMoepMsit);
  c.model.moep.windowed = false;
  const double dense = 4 * 256 + 3 * 16 * 24, down = 16 * 12, up = 12 * 16;
  const double expert = 4 * 144 + 3 * 12 * 32;  // 8/3 of 12 is 32
  const double linear = 2 * (dense + down + up + expert) + kHead;
  // An expert holds 4 of a sequence's 8 tokens: half of them see 2.5 on average, two experts.
  const double experts = 2 * 2 * 12 * 2.5;
  expect_products(c, {linear, 2 * 16 * 2, kAttention + experts});
  c.model.moep.select = Selection::kTokenChoice;
  expect_products(c, {linear, 2 * 16 * 2, kAttention + experts});
  c.model.moep.select = Selection::kPredictor;
  expect_products(c, {linear, 2 * (16 * 2 + 64 * 16 + 64 * 2), kAttention + experts});
  c.model.moep.select = Selection::kEcSeq;
  c.model.moep.global_block = false;
  expect_products(c, {linear - 2 * dense, 2 * 16 * 2, experts});
  c.model.moep.windowed = true;  // 4 rows by a window of 5: 10 pairs; of 3: 1 + 2 + 3 + 3
  expect_products(c, {linear - 2 * dense, 2 * 16 * 2, 2 * 2 * 12 * (10 + 9) / 8.0});
}

TEST(ProductsTest, PairsAreThoseOfAMask) {
  for (const int64_t window : {0, 1, 3, 9}) {
    for (const int64_t before : {0, 2}) {
      const AttentionProduct p{"", 1, 1, 7, 1, before, window, 1};
      int64_t pairs = 0;
      for (int64_t t = 0; t < 7; ++t) {
        pairs += before;
        for (int64_t key = 0; key <= t; ++key) pairs += window == 0 || t - key < window ? 1 : 0;
      }
      EXPECT_EQ(p.pairs(), pairs) << window << " " << before;
    }
  }
}

}  // namespace
}  // namespace anabranch
