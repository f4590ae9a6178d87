// Products run alone: of their own sizes, and all of them.
#include "runtime/bench/product_run.h"

#include <gtest/gtest.h>

namespace anabranch {
namespace {

const std::shared_ptr<Pool> kNoPool;  // the heap

TEST(ProductRunTest, CountsOperationsAndBytes) {
  const Product one{"one", 5, 3, 4};
  ProductRun run(one, 5, DType::kBF16, kNoPool);
  run.all();
  EXPECT_EQ(run.flops(), 2 * 5 * 3 * 4);
  const ProductCost cost = cost_of(one, 5, DType::kBF16);
  EXPECT_EQ(cost.flops, run.flops());
  EXPECT_EQ(cost.row_bytes, 2 * (15 + 20 + 12));
  EXPECT_EQ(cost.dw_bytes, 2 * (15 + 20) + 4 * 2 * 12);
  const Product experts{"experts", 7, 3, 4, 2};
  ProductRun grouped(experts, 7, DType::kF32, kNoPool);
  grouped.all();
  EXPECT_EQ(grouped.flops(), 2 * 7 * 3 * 4);
  EXPECT_EQ(cost_of(experts, 7, DType::kF32).flops, grouped.flops());
  EXPECT_EQ(cost_of(experts, 7, DType::kF32).row_bytes, 4 * (21 + 28 + 24));
  Product wide = one;
  wide.wide = true;
  EXPECT_EQ(cost_of(wide, 5, DType::kBF16).row_bytes, 4 * (15 + 20 + 12));
}

TEST(ProductRunTest, TheHeadRunsInPieces) {
  const Product map{"map", 1 << 20, 8, 1 << 16},
      head{"head", 1 << 20, 8, 1 << 16, 1, 1, ProductRole::kHead};
  EXPECT_EQ(rows_at_once(map, DType::kF32), 1 << 20);
  EXPECT_LT(rows_at_once(head, DType::kF32), 1 << 20);
  EXPECT_GT(rows_at_once(head, DType::kF32), 0);
}

TEST(ProductRunTest, AttentionHasKeysBeforeAndWindows) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const AttentionProduct& p :
         {AttentionProduct{"", 2, 3, 70, 4}, AttentionProduct{"", 2, 3, 70, 4, 5},
          AttentionProduct{"", 2, 3, 130, 4, 0, 65}}) {
      const AttentionRun run(p, type, kNoPool);
      run.products();
      run.op();
      EXPECT_EQ(run.dy().shape(), (Shape{2 * (p.before + p.tokens), 12}));
    }
  }
}

TEST(ProductRunTest, TimesAllOfThem) {
  Products products;
  EXPECT_EQ(time_products(products, DType::kF32, kNoPool).linear, 0);
  products.add({"nothing", 0, 4, 4});
  EXPECT_TRUE(products.linear.empty());
  products.add({"map", 6, 4, 4});
  products.add_attention({"attention", 1, 1, 6, 4});
  const ProductSeconds seconds = time_products(products, DType::kF32, kNoPool);
  EXPECT_GT(seconds.linear, 0);
  EXPECT_GT(seconds.attention, 0);
  EXPECT_GT(seconds.whole_attention, 0);
}

}  // namespace
}  // namespace anabranch
