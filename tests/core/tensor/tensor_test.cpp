#include "core/tensor/tensor.h"

#include <gtest/gtest.h>

namespace anabranch {
namespace {

TEST(Tensor, WhoAsksForElementsOnTheirWayWaitsForThem) {
  Tensor t = Tensor::of<float>({4}, {0, 0, 0, 0});
  Tensor view = t.view(2, {2});
  const Tensor other = Tensor::of<float>({2}, {5, 6});
  const Tensor& fixed = view;
  Tensor target({2}, DType::kF32);
  const std::vector<std::function<void()>> askers{[&] { (void)view.data<float>(); },
                                                  [&] { (void)fixed.data<float>(); },
                                                  [&] { (void)view.span<float>(); },
                                                  [&] { (void)fixed.span<float>(); },
                                                  [&] { (void)view.raw(); },
                                                  [&] { (void)fixed.raw(); },
                                                  [&] { (void)view.clone(); },
                                                  [&] { target.copy_from(view); },
                                                  [&] { view.copy_from(other); },
                                                  [&] { view.fill_zero(); },
                                                  [&] {
                                                    (void)t.reshape({2, 2}).data<float>();
                                                  }};
  for (size_t i = 0; i < askers.size(); ++i) {
    bool waited = false;
    t.expect([&] { waited = true; });
    askers[i]();
    EXPECT_TRUE(waited) << "asker " << i;
  }
}

TEST(Tensor, ShapesAreKnownBeforeElementsAreHere) {
  Tensor t({2, 3}, DType::kBF16);
  int waits = 0;
  t.expect([&] { ++waits; });
  Tensor view = t.view(3, {3});
  EXPECT_EQ(view.count() + t.dim(1), 6);
  EXPECT_EQ(view.landing(), t.landing() + 3 * size_of(DType::kBF16));
  EXPECT_TRUE(view.shares(t.reshape({6})));
  EXPECT_FALSE(t.like("other").shares(t));
  EXPECT_EQ(waits, 0);
  (void)view.raw();
  (void)t.raw();
  EXPECT_EQ(waits, 2);
  t.expect(nullptr);
  (void)view.raw();
  EXPECT_EQ(waits, 2);
}

TEST(Tensor, AnEmptyOneHasNothingToWaitFor) {
  const Tensor none;
  EXPECT_EQ(none.raw(), nullptr);
}

// What fails to come fails whoever asks.
TEST(Tensor, AFailureOnTheWayIsTheReaders) {
  Tensor t({1}, DType::kF32);
  t.expect([] { throw Error(Fault::kPeer, "lost"); });
  EXPECT_THROW((void)t.data<float>(), Error);
}

}  // namespace
}  // namespace anabranch
