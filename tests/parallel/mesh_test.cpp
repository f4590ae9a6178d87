#include "parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace anabranch {
namespace {

using test::refusal;
using testing::HasSubstr;

TEST(Mesh, ModelRanksAreConsecutive) {
  run_on_threads(8, [](Group& world) {
    const Mesh mesh(world, mesh_shape(8, 2, 4, 1));
    EXPECT_EQ(mesh.shape().data, 4);
    EXPECT_EQ(mesh.model().size(), 2);
    EXPECT_EQ(mesh.model().rank(), world.rank() % 2);
    EXPECT_EQ(mesh.data().size(), 4);
    EXPECT_EQ(mesh.data().rank(), world.rank() / 2);
    EXPECT_EQ(mesh.pool().size(), 4);
    EXPECT_EQ(mesh.pool().rank(), world.rank() % 4);
    Tensor x = Tensor::of<int64_t>({1}, {world.rank()});
    mesh.data().all_reduce_sum(x).wait();
    EXPECT_EQ(*x.data<int64_t>(), 12 + 4 * (world.rank() % 2));  // 0+2+4+6 or 1+3+5+7
    EXPECT_EQ(&mesh.reduce(ReduceGroup::kAll), &world);
    EXPECT_EQ(&mesh.reduce(ReduceGroup::kData), &mesh.data());
  });
}

TEST(Mesh, APoolLiesOnAsManyRanksAsItHasMicroBatches) {
  EXPECT_EQ(mesh_shape(8, 1, 1, 4).pool, 1);
  EXPECT_EQ(mesh_shape(8, 1, 4, 1).pool, 4);
  EXPECT_EQ(mesh_shape(4, 1, 16, 4).pool, 4);
  EXPECT_EQ(mesh_shape(4, 1, 16, 32).pool, 1);
}

TEST(Mesh, RefusalsShowTheNumbers) {
  EXPECT_THAT(refusal([] { mesh_shape(6, 4, 1, 1); }),
              HasSubstr("parallel.model is 4 but there are 6 ranks; it must divide them: one of "
                        "1, 2, 3, 6"));
  EXPECT_THAT(refusal([] { mesh_shape(6, 0, 1, 1); }), HasSubstr("parallel.model is 0"));
  EXPECT_THAT(refusal([] { mesh_shape(6, 1, 4, 1); }), HasSubstr("a pool lies on 4 ranks"));
  EXPECT_THAT(refusal([] { mesh_shape(4, 1, 6, 4); }), HasSubstr("a multiple of the other"));
  EXPECT_THAT(refusal([] { mesh_shape(4, 1, 0, 1); }), HasSubstr("at least 1"));
  const auto self = self_group();
  EXPECT_THAT(refusal([&] {
                Mesh(*self, {2, 3, 1});
              }),
              HasSubstr("data 2 x model 3 has 6 ranks but there are 1"));
  EXPECT_THAT(refusal([&] { Mesh(*self, {1, 1, 2}); }), HasSubstr("a pool of 2 ranks"));
}

}  // namespace
}  // namespace anabranch
