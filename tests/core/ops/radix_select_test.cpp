#include "core/ops/radix_select.h"

#include <limits>
#include <numeric>

#include "core/ops/pool_counts.h"
#include "tests/support/op_checks.h"
#include "tests/support/plans.h"

namespace anabranch {
namespace {

using test::devices;
using test::ints;
using test::TestDevice;
using Counts = std::vector<int64_t>;

// The sum of tensors of int64.
Tensor sum_of(const std::vector<Tensor>& all) {
  Tensor sum(all.front().shape(), DType::kI64);
  sum.fill_zero();
  for (const Tensor& t : all) {
    const Counts values = test::elements<int64_t>(t);
    for (size_t i = 0; i < values.size(); ++i) sum.data<int64_t>()[i] += values[i];
  }
  return sum;
}

// What each part takes, by digits of `bits` bits.
std::vector<ExpertChoice> choose(const std::vector<Tensor>& parts, int64_t k, int bits,
                                 SlotOrder order, const TestDevice& device) {
  std::vector<RadixSelect> of;
  for (const Tensor& part : parts) of.push_back(radix_select(device.place(part), k));
  const auto each = [&](const auto& f) {
    std::vector<Tensor> all;
    for (const RadixSelect& part : of) all.push_back(f(part));
    return all;
  };
  for (int high = static_cast<int>(8 * size_of(parts.front().dtype())); high > 0; high -= bits) {
    const KeyDigit digit{std::max(high - bits, 0), std::min(bits, high)};
    const Tensor counts = device.place(
        sum_of(each([&](const RadixSelect& part) { return digit_counts(part, digit); })));
    for (RadixSelect& part : of) take_digit(part, digit, counts);
  }
  const std::vector<Tensor> ties = each([](const RadixSelect& part) {
    return digit_counts(part, {0, 0});
  });
  std::vector<ExpertChoice> taken;
  Tensor before(ties.front().shape(), DType::kI64);
  before.fill_zero();
  for (size_t p = 0; p < parts.size(); ++p) {
    taken.push_back({slots_taken(of[p], device.place(before), order), k, kth_scores(of[p])});
    before = sum_of({before, ties[p]});
  }
  return taken;
}

// All as among the rows of one part, whatever the length of digits.
void expect_choice(const Tensor& scores, const Counts& rows_of, double capacity, int bits,
                   SlotOrder order, const TestDevice& device) {
  const int64_t E = scores.dim(1);
  const ExpertChoice whole = expert_choice(scores, {capacity, 0, order});
  std::vector<Tensor> parts;
  int64_t first = 0;
  for (const int64_t rows : rows_of) {
    parts.push_back(scores.view(first * E, {rows, E}));
    first += rows;
  }
  const std::vector<ExpertChoice> got = choose(parts, whole.k, bits, order, device);
  first = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const SlotPlan want = slots_of(whole.plan, first, rows_of[p]);
    const SlotPlan& plan = got[p].plan;
    EXPECT_EQ(plan.rows, rows_of[p]);
    EXPECT_EQ(test::offsets(plan.groups), want.groups.offsets) << "part " << p;
    EXPECT_EQ(test::used(plan, plan.source), ints(want.source)) << "part " << p;
    EXPECT_EQ(test::used(plan, plan.gate), ints(want.gate)) << "part " << p;
    EXPECT_TRUE(test::same_bytes(got[p].kth, whole.kth));
    first += rows_of[p];
  }
}

// Many ties, zeros of both signs, infinities and NaN of both signs.
Tensor coarse(int64_t rows, int64_t experts, DType type) {
  Tensor scores = test::random({rows, experts}, 5);
  for (double& v : scores.span<double>()) {
    if (std::abs(v) < 0.7) v = std::round(3 * v) / 3;
    if (v > 0.9) v = std::nan("");
    if (v < -0.95) v = -std::nan("");
    if (v > 0.8) v = std::numeric_limits<double>::infinity();
  }
  return test::cast(scores, type);
}

TEST(RadixSelect, TakesTheLargestOfAllParts) {
  for (const TestDevice& device : devices()) {
    const Tensor a = Tensor::of<float>({2, 1}, {1, 3}), b = Tensor::of<float>({3, 1}, {2, 3, 3});
    const std::vector<ExpertChoice> got = choose({a, b}, 2, 8, SlotOrder::kTime, device);
    EXPECT_EQ(test::used(got[0].plan, got[0].plan.source), (std::vector<int32_t>{1}));
    EXPECT_EQ(test::used(got[1].plan, got[1].plan.source), (std::vector<int32_t>{1}));
    EXPECT_EQ(test::values(got[0].kth), (std::vector<double>{3}));
  }
}

TEST(RadixSelect, IsExpertChoice) {
  for (const TestDevice& device : devices()) {
    for (const DType type : {DType::kF32, DType::kF64}) {
      const Tensor scores = coarse(90, 3, type);
      for (const int bits : {1, 5, 8, 11}) {
        for (const double capacity : {0.001, 0.5, 1.3, 3.0}) {
          const auto order = bits == 5 ? SlotOrder::kAffinity : SlotOrder::kTime;
          expect_choice(scores, {40, 0, 13, 37}, capacity, bits, order, device);
        }
      }
    }
  }
}

// More than one tile of a warp for each expert, and than one block.
TEST(RadixSelect, OfManyRows) {
  for (const TestDevice& device : devices()) {
    for (const SlotOrder order : {SlotOrder::kTime, SlotOrder::kAffinity}) {
      expect_choice(coarse(1500, 5, DType::kF32), {800, 700}, 1, 12, order, device);
      expect_choice(test::full({1200, 2}, 0.25), {700, 500}, 1.5, 8, order, device);
    }
  }
}

TEST(RadixSelect, ADigitIsOfThoseThatBeginAlike) {
  constexpr KeyDigit kDigit{4, 8};
  EXPECT_EQ(kDigit.of(uint32_t{0xABC3D4E5}, uint32_t{0xABC3D000}), 0x4E);
  EXPECT_EQ(kDigit.of(uint32_t{0xABC3C4E5}, uint32_t{0xABC3D000}), -1);
  EXPECT_EQ((KeyDigit{56, 8}.of(~uint64_t{0}, uint64_t{0})), 255);
  EXPECT_EQ((KeyDigit{0, 0}.of(uint32_t{7}, uint32_t{7})), 0);
  EXPECT_EQ((KeyDigit{0, 0}.of(uint32_t{7}, uint32_t{6})), -1);
}

TEST(RadixSelect, ThreadsAgree) {
  const int before = thread_count();
  const Tensor scores = coarse(400, 7, DType::kF32);
  const auto gates = [&](int threads) {
    set_thread_count(threads);
    return ints(choose({scores}, 50, 8, SlotOrder::kTime, devices().front())[0].plan.gate);
  };
  EXPECT_EQ(gates(1), gates(3));
  set_thread_count(before);
}

TEST(RadixSelect, RefusesWhatDoesNotFit) {
  const Tensor scores = test::random({4, 3}, 1, DType::kF32);
  EXPECT_THROW(radix_select(scores, 0), Error);
  EXPECT_THROW(radix_select(scores.reshape({12}), 1), Error);
  EXPECT_THROW(radix_select(test::random({4, 3}, 1, DType::kBF16), 1), Error);
  RadixSelect of = radix_select(scores, 1);
  EXPECT_THROW((void)digit_counts(of, {24, 13}), Error);
  EXPECT_THROW((void)digit_counts(of, {28, 8}), Error);
  EXPECT_THROW(take_digit(of, {24, 8}, Tensor({3, 128}, DType::kI64)), Error);
  EXPECT_THROW(take_digit(of, {24, 8}, Tensor({3, 256}, DType::kI32)), Error);
  EXPECT_THROW((void)slots_taken(of, Tensor({1, 2}, DType::kI64), SlotOrder::kTime), Error);
}

}  // namespace
}  // namespace anabranch
