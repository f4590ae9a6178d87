#include "parallel/stream_region.h"

#include <algorithm>

#include "parallel/division.h"
#include "tests/support/op_checks.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

constexpr int64_t kRows = 7, kWidth = 5, kHidden = 6, kStreams = 4;

struct Streams {
  Param w, b;

  Streams()
      : w(test::param("w", test::random({kStreams, kHidden, kWidth}, 1))),
        b(test::param("b", test::random({kStreams, kHidden}, 2))) {}

  static Streams zero() {
    Streams none;
    none.w = test::param("w", test::full(none.w.shape, 0));
    none.b = test::param("b", test::full(none.b.shape, 0));
    return none;
  }

  // The streams of one rank.
  Streams(const Division& d, int rank) : Streams() {
    const int64_t first = d.begin(rank), n = d.count(rank);
    w = test::param("w", w.value.view(first * kHidden * kWidth, {n, kHidden, kWidth}));
    b = test::param("b", b.value.view(first * kHidden, {n, kHidden}));
  }
};

Tensor rows_of(const Tensor& all, int rank, int64_t rows) {
  const int64_t width = all.dim(1);
  return all.view(rank * rows * width, {rows, width}).clone();
}

// The streams of all ranks, against one rank that has them all.
class StreamsOverRanks : public testing::TestWithParam<int> {
 protected:
  const int size_ = GetParam();
  const Tensor s_ = test::random({size_ * kRows, kWidth}, 3);
  const Tensor g_ = test::random({size_ * kRows, kStreams}, 4);
  const Tensor du_ = test::random({size_ * kRows, kHidden}, 5);
};

TEST_P(StreamsOverRanks, AreThoseOfOneInChunksOfAnySize) {
  Streams whole;
  Tape tape;
  const Var s = tape.input(s_), g = tape.input(g_);
  const Var u = stream_linear(s, g, whole.w, whole.b);
  tape.backward(u, du_);
  const Tensor ds = tape.take_grad(s), dg = tape.take_grad(g);
  const Division streams{kStreams, size_};
  for (const int64_t chunk : {1, 2, 3, 6, 7, 100}) {
    run_on_threads(size_, [&](Group& group) {
      const int r = group.rank();
      // Its streams and zeros, so that it takes all gates.
      Streams padded = Streams::zero();
      const int64_t at = streams.begin(r) * kHidden * kWidth;
      const Shape mine{streams.count(r), kHidden, kWidth};
      padded.w.value.view(at, mine).copy_from(whole.w.value.view(at, mine));
      const int64_t bias = streams.begin(r) * kHidden, biases = streams.count(r) * kHidden;
      padded.b.value.view(bias, {biases}).copy_from(whole.b.value.view(bias, {biases}));
      Tape t;
      const Var x = t.input(rows_of(s_, r, kRows)), gates = t.input(rows_of(g_, r, kRows));
      const Var y = through(group, {x, gates}, chunk, DType::kF64, [&](const auto& rows) {
        return stream_linear(rows[0], rows[1], padded.w, padded.b);
      });
      const auto near = [&](const Tensor& got, const Tensor& all, const char* what) {
        test::expect_near(got, test::values(rows_of(all, r, kRows)), {1e-12, 1e-13},
                          join(what, " in chunks of ", chunk));
      };
      near(y.value(), u.value(), "U");
      t.backward(y, rows_of(du_, r, kRows));
      near(t.take_grad(x), ds, "ds");
      test::expect_near(padded.w.grad.view(at, mine), test::values(whole.w.grad.view(at, mine)),
                        {1e-12, 1e-13}, "dw");
      near(t.take_grad(gates), dg, "dg");
    });
  }
}

TEST_P(StreamsOverRanks, MeetOnlyTheGatesOfTheirOwn) {
  Streams whole;
  const Tensor u = stream_linear(s_, g_, whole.w, whole.b).value();
  run_on_threads(size_, [&](Group& group) {
    const StreamRegion region(Regions{&group, nullptr, StreamLayout::kGather});
    Streams mine(Division{kStreams, size_}, group.rank());
    const Var y = region.sum(rows_of(s_, group.rank(), kRows), rows_of(g_, group.rank(), kRows),
                             DType::kF64, [&](const Var& s, const Var& g) {
                               return stream_linear(s, g, mine.w, mine.b, MixOrder::kScaled,
                                                    region.part_sums());
                             });
    test::expect_near(y.value(), test::values(rows_of(u, group.rank(), kRows)), {1e-12, 1e-13},
                      "U");
  });
}

// A layer of streams as a run of any layout computes it, of which this rank has some: one sequence
// of kRows rows a rank, as a micro-batch of one rank in a lane of its own.
struct AnyLayoutStreams {
  static constexpr int kSequences = 4;
  Streams streams;
  std::vector<std::vector<Tensor>> made;  // by sequence: U, ds, dg

  explicit AnyLayoutStreams(Streams of) : streams(std::move(of)) {
    for (Param* w : {&streams.w, &streams.b}) {
      w->value = w->master = test::cast(w->value, DType::kF32);
      w->grad = w->value.like("gradient");
      for (int lane = 1; lane < kSequences; ++lane) {
        w->lanes.push_back({w->value.like("gradient")});
      }
    }
  }

  void run(int sequence, const Regions& regions, StreamOrder order = StreamOrder::kTree) {
    const StreamRegion region(regions);
    const auto seed = static_cast<uint32_t>(3 * sequence);
    Tape tape;
    tape.set_lane(sequence);
    const Var s = tape.input(test::random({kRows, kWidth}, seed + 3, DType::kF32));
    const Var g = tape.input(test::random({kRows, kStreams}, seed + 4, DType::kF32));
    const Var y = region.sum(s, g, DType::kF32, [&](const Var& rows, const Var& gates) {
      return stream_linear(rows, gates, streams.w, streams.b, MixOrder::kScaled, region.part_sums(),
                           order);
    });
    tape.backward(y, test::random({kRows, kHidden}, seed + 5, DType::kF32));
    made.push_back({y.value(), tape.take_grad(s), tape.take_grad(g)});
  }

  // The gradient of each lane.
  [[nodiscard]] std::vector<Tensor> kernels() const {
    std::vector<Tensor> all{streams.w.grad};
    for (const GradLane& lane : streams.w.lanes) all.push_back(lane.grad);
    return all;
  }
};

TEST(StreamRegionOfAnyLayout, IsThatOfOneRankBitByBit) {
  AnyLayoutStreams one{Streams()};
  for (int i = 0; i < AnyLayoutStreams::kSequences; ++i) one.run(i, {.any_layout = true});
  for (const int ranks : {2, 4}) {
    run_on_threads(ranks, [&](Group& group) {
      const Division division{kStreams, ranks};
      AnyLayoutStreams mine{Streams(division, group.rank())};
      for (int i = group.rank(); i < AnyLayoutStreams::kSequences; i += ranks) {
        mine.run(i, {.model = &group, .any_layout = true});
        const std::vector<Tensor>& want = one.made[static_cast<size_t>(i)];
        for (size_t what = 0; what < want.size(); ++what) {
          EXPECT_TRUE(test::same_bytes(mine.made.back()[what], want[what]))
              << ranks << " ranks, sequence " << i << ", " << what;
        }
      }
      const int64_t first = division.begin(group.rank()) * kHidden * kWidth;
      for (size_t lane = 0; lane < one.kernels().size(); ++lane) {
        const Tensor got = mine.kernels()[lane];
        EXPECT_TRUE(test::same_bytes(got, one.kernels()[lane].view(first, got.shape()))) << lane;
      }
    });
  }
}

// Wrong ones show: streams in another order, and gradients of all rows in the lane of the rank that
// has the streams.
TEST(StreamRegionOfAnyLayout, AWrongOneIsNot) {
  AnyLayoutStreams one{Streams()}, rising{Streams()};
  for (int i = 0; i < AnyLayoutStreams::kSequences; ++i) one.run(i, {.any_layout = true});
  rising.run(0, {.any_layout = true}, StreamOrder::kRising);
  EXPECT_FALSE(test::same_bytes(rising.made[0][0], one.made[0][0]));
  run_on_threads(2, [&](Group& group) {
    const Division division{kStreams, 2};
    AnyLayoutStreams together{Streams(division, group.rank())};
    for (int i = group.rank(); i < AnyLayoutStreams::kSequences; i += 2) {
      together.run(i, {.model = &group});
    }
    const auto lane = static_cast<size_t>(group.rank());
    const int64_t first = division.begin(group.rank()) * kHidden * kWidth;
    const Tensor got = together.kernels()[lane];
    EXPECT_FALSE(test::same_bytes(got, one.kernels()[lane].view(first, got.shape())));
  });
}

// What figures read: every layout has the whole, in the order of the streams.
TEST_P(StreamsOverRanks, ComeHomeAndBecomeSlices) {
  const Shape shape{kStreams, kHidden, kWidth};
  const Tensor all = test::random(shape, 1);
  // What stream k's unit f makes of row n of rank r.
  const auto made_of = [](int64_t r, int64_t k, int64_t f, int64_t n) {
    return static_cast<double>(1000 * r + 100 * k + 10 * f + n);
  };
  for (const StreamLayout layout : {StreamLayout::kGather, StreamLayout::kSlice}) {
    run_on_threads(size_, [&](Group& group) {
      const StreamRegion region(Regions{&group, nullptr, layout});
      Param w("w", shape, Init::constant(0));
      region.split(w, region.slices() ? 1 : 0);
      EXPECT_EQ(w.parts, size_);
      const int64_t n = w.shape[0], f = w.shape[1];
      const int64_t k0 = n < kStreams ? w.slice_begin : 0, f0 = f < kHidden ? w.slice_begin : 0;
      std::vector<double> values;
      for (int64_t r = 0; r < size_; ++r) {
        for (int64_t i = 0; i < n * f * 2; ++i) {
          values.push_back(made_of(r, k0 + i / 2 / f, f0 + i / 2 % f, i % 2));
        }
      }
      std::vector<double> got, want;
      for (const Tensor& piece :
           region.come_home(Tensor::of<double>({size_, n, f, 2}, values), shape)) {
        EXPECT_EQ(piece.dim(0), kStreams);
        const auto part = test::values(piece);
        got.insert(got.end(), part.begin(), part.end());
      }
      for (int64_t k = 0; k < kStreams; ++k) {
        for (int64_t h = 0; h < kHidden * 2; ++h) {
          want.push_back(made_of(group.rank(), k, h / 2, h % 2));
        }
      }
      if (region.slices()) std::ranges::sort(got);  // pieces have some of each stream
      EXPECT_EQ(got, want);

      const Part part = w.part();
      Tensor here(w.shape, DType::kF64);
      part.runs(0, here.count(), [&](int64_t to, int64_t from, int64_t count) {
        here.view(to, {count}).copy_from(all.view(from, {count}));
      });
      const Tensor slice = region.slices_of(here, shape);
      const Division hidden{kHidden, size_};
      const Part wanted{shape, 1, hidden.begin(group.rank()), hidden.count(group.rank())};
      EXPECT_EQ(slice.shape(), wanted.shape());
      wanted.runs(0, slice.count(), [&](int64_t at, int64_t from, int64_t count) {
        EXPECT_EQ(test::values(slice.view(at, {count})), test::values(all.view(from, {count})));
      });
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamsOverRanks, testing::Values(2, 3, 4));

// "G" for each gathering and "S" for each sum, in the order in which they ran.
std::string order_of(const Trace& trace) {
  const std::string text = trace.json(0);
  std::string order;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text.compare(at, 10, "all_gather") == 0) order += 'G';
    if (text.compare(at, 14, "reduce_scatter") == 0) order += 'S';
  }
  return order;
}

// A chunk's rows set out before the one before is computed with, and its sums while the next one
// is; backward mirrors that.
TEST(Through, TransfersOverlapTheChunksBeside) {
  run_on_threads(2, [](Group& group) {
    Trace forward, backward;
    forward.set_on(true);
    backward.set_on(true);
    group.set_trace(&forward);
    Tape tape;
    const Var x = tape.input(test::random({6, 2}, 1));
    const Var y = through(group, {x}, 2, DType::kF64, [&](const std::vector<Var>& rows) {
      return tape.record("body", rows[0].value(), {},
                         [v = rows[0]](Tape& t, const Tensor& dy) { t.give(v, dy); });
    });
    EXPECT_EQ(test::values(y.value())[0], 2 * test::values(x.value())[0]);
    group.barrier();
    group.set_trace(&backward);
    tape.backward(y, test::full({6, 2}, 1));
    EXPECT_EQ(test::values(tape.take_grad(x)), std::vector<double>(12, 2));
    group.barrier();
    group.set_trace(nullptr);
    EXPECT_EQ(order_of(forward), "GGSGSS");
    EXPECT_EQ(order_of(backward), "GGSGSS");
  });
}

TEST(Through, ChunksAreFewAndNotSmall) {
  EXPECT_EQ(chunk_rows(0), 1);
  EXPECT_EQ(chunk_rows(100), 100);
  EXPECT_EQ(chunk_rows(511), 511);
  EXPECT_EQ(chunk_rows(512), 256);
  EXPECT_EQ(chunk_rows(4096), 1024);
}

TEST(StreamRegion, AloneAddsNothing) {
  const StreamRegion region(Regions{});
  EXPECT_TRUE(region.alone());
  EXPECT_FALSE(region.slices());
  const Var s(test::random({2, 2}, 1)), g(test::random({2, 3}, 2));
  const Var y = region.sum(s, g, DType::kF64, [&](const Var& rows, const Var& gates) {
    EXPECT_EQ(rows.value().raw(), s.value().raw());
    EXPECT_EQ(gates.value().raw(), g.value().raw());
    return rows;
  });
  EXPECT_EQ(y.value().raw(), s.value().raw());
}

}  // namespace
}  // namespace anabranch
