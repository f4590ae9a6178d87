// Where kernels put sums of columns in shared memory: each in a place of its own, and no two lanes
// of an access in one bank.
#include "core/ops/lane_sums.cuh"

#include <algorithm>
#include <array>
#include <set>

#include <gtest/gtest.h>

namespace anabranch::cuda {
namespace {

constexpr int kBanks = 32, kBankBytes = 4;

// How often the fullest bank is asked when every lane of a warp accesses kLanePiece elements from
// place(lane), as a GPU does it: 128 bytes at a time, so 8 lanes of 16 bytes.
template <int kN, class A, class Place>
int most_of_a_bank(const Place& place) {
  constexpr int kBytes = kLanePiece<kN, A> * static_cast<int>(sizeof(A));
  constexpr int kTogether = std::min(kWarp, kBanks * kBankBytes / kBytes);
  int most = 0;
  for (int first = 0; first < kWarp; first += kTogether) {
    std::array<int, kBanks> asked{};
    for (int lane = first; lane < first + kTogether; ++lane) {
      const int begin = place(lane) * static_cast<int>(sizeof(A));
      for (int byte = begin; byte < begin + kBytes; byte += kBankBytes) {
        most = std::max(most, ++asked[static_cast<size_t>(byte / kBankBytes % kBanks)]);
      }
    }
  }
  return most;
}

template <int kN, class A>
void expect_no_conflicts() {
  for (int i = 0; i < kN; i += kLanePiece<kN, A>) {
    const auto place = [i](int lane) { return lane_place<kN, A>(lane, i); };
    EXPECT_EQ((most_of_a_bank<kN, A>(place)), 1) << kN << " a lane, from " << i;
  }
}

TEST(LaneSums, NoTwoLanesMeetInABank) {
  expect_no_conflicts<8, float>();
  expect_no_conflicts<4, float>();
  expect_no_conflicts<2, double>();
  expect_no_conflicts<1, float>();
  expect_no_conflicts<1, double>();
}

// What the counting would say of sums in the order of their columns.
TEST(LaneSums, InTheOrderOfColumnsTheyWould) {
  const auto in_order = [](int lane) { return 8 * lane; };
  EXPECT_EQ((most_of_a_bank<8, float>(in_order)), 2);  // by 16 bytes
  int asked = 0;                                       // by 4, as one element of each lane is
  for (int lane = 0; lane < kWarp; ++lane) asked += in_order(lane) % kBanks == 0 ? 1 : 0;
  EXPECT_EQ(asked, 8);
}

template <int kN, class A>
void expect_own_places(int64_t columns) {
  std::set<int64_t> places;
  for (int64_t c = 0; c < columns; ++c) places.insert(column_place<kN, A>(c));
  EXPECT_EQ(static_cast<int64_t>(places.size()), columns);
  EXPECT_EQ(*places.begin(), 0);
  EXPECT_EQ(*places.rbegin(), columns - 1);  // of whole steps
}

TEST(LaneSums, EveryColumnHasAPlaceOfItsOwn) {
  expect_own_places<8, float>(768);
  expect_own_places<4, float>(384);
  expect_own_places<2, double>(192);
  expect_own_places<1, float>(96);
}

}  // namespace
}  // namespace anabranch::cuda
