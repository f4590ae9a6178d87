// State on any layout: what N ranks save, M ranks load, however parameters are split.
#include "runtime/training_state.h"

#include <deque>
#include <set>

#include <gtest/gtest.h>

#include "core/base/philox.h"
#include "core/nn/init.h"
#include "parallel/division.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/memory_need.h"
#include "runtime/resume.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace anabranch {
namespace {

// A model of no function with every kind of parameter: whole ones, ones split along axis 0 and 1,
// matrices, and experts that are parameters of their own on the rank that has them.
class Synthetic final : public Model {
 public:
  // As rank `rank` of `ranks` among whom it is split.
  Synthetic(int ranks, int rank, DType compute) {
    add("wte", {17, 5});
    add("norm", {7});
    add("proj", {8, 6}).owner = Owner::kMatrix;
    Param& experts = add("experts", {9, 4, 3});
    experts.owner = Owner::kMatrix;
    experts.matrices = 9;
    cut(experts, 0, ranks, rank);
    cut(add("kernels", {2, 11, 3}), 1, ranks, rank);
    const Division own{10, ranks};
    for (int64_t i = own.begin(rank); i < own.end(rank); ++i) {
      add(join("expert.", i, ".up"), {3, 4 + i}).reduce = ReduceGroup::kData;
    }
    add("head", {5, 40});
    for (Param& w : params_) set_compute(w, compute);
    threshold_.name = "threshold";
    threshold_.value = Tensor({3}, DType::kF64);
    threshold_.value.fill_zero();
  }

  void visit(const std::function<void(Param&)>& f) override {
    for (Param& w : params_) f(w);
  }

  void visit_buffers(const std::function<void(Buffer&)>& f) override { f(threshold_); }

  Var loss(Tape&, const MicroBatch&, const StepKey&, double) override { return {}; }

  Tensor token_losses(const MicroBatch&, Routing) override { return {}; }

  Tensor logits(const Tensor&) override { return {}; }

  Tensor decode_hidden(const Tensor&, std::span<const int64_t>, DecodeState&) override {
    return {};
  }

  [[nodiscard]] const Head& head() const override { return head_; }

  [[nodiscard]] DecodeState decode_state(int64_t, int64_t) const override { return {}; }

  [[nodiscard]] ModelCost cost() const override { return {}; }

  [[nodiscard]] Products products(int64_t) const override { return {}; }

  [[nodiscard]] int64_t context() const override { return 1; }

  [[nodiscard]] int64_t vocabulary() const override { return 1; }

 private:
  Param& add(const std::string& name, Shape shape) {
    return params_.emplace_back(name, shape, Init::normal(1));
  }

  static void cut(Param& w, int axis, int ranks, int rank) {
    const Division division{w.shape[axis], ranks};
    w.split(axis, division.begin(rank), division.count(rank), ranks);
  }

  std::deque<Param> params_;
  Buffer threshold_;
  Param table_;
  Head head_{table_};
};

struct Layout {
  int ranks, model;
  bool zero;

  [[nodiscard]] FlatStore::Options options(int rank) const {
    return {.bucket_bytes = 600,
            .all_ranks = ranks,
            .data_ranks = ranks / model,
            .all_rank = rank,
            .data_rank = rank / model,
            .zero = zero};
  }

  [[nodiscard]] std::string text() const {
    return join(ranks, " ranks, model ", model, ", zero ", zero);
  }
};

Config config_of(MatrixOptimizer matrix) {
  Config config;
  config.optim.matrix = matrix;
  config.train.steps = 10;
  return config;
}

// One rank of a run.
struct Rank {
  Rank(const Layout& layout, int rank, const Config& config, DType compute)
      : model(layout.model, rank % layout.model, compute),
        state(model, config, layout.options(rank), pool),
        items(state.items()) {}

  std::shared_ptr<Pool> pool = std::make_shared<Pool>();
  Synthetic model;
  TrainingState state;
  std::vector<StateItem> items;
};

std::deque<Rank> ranks_of(const Layout& layout, const Config& config, DType compute = DType::kF32) {
  std::deque<Rank> ranks;
  for (int r = 0; r < layout.ranks; ++r) ranks.emplace_back(layout, r, config, compute);
  return ranks;
}

// What element `i` of a logical tensor is: a whole number.
double content(const std::string& name, int64_t i) {
  return static_cast<double>(name_key(name) % 1000 * 1000) + static_cast<double>(i);
}

// The place in the logical tensor of element `i` of a part, from the strides of both.
int64_t place_of(const Part& part, int64_t i) {
  const Shape mine = part.shape();
  int64_t place = 0, stride = 1;
  for (int axis = mine.rank() - 1; axis >= 0; --axis) {
    place += (i % mine[axis] + (axis == part.axis ? part.begin : 0)) * stride;
    i /= mine[axis];
    stride *= part.whole[axis];
  }
  return place;
}

void fill(const StateItem& item) {
  Tensor value = item.value;
  dispatch(value.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < value.count(); ++i) {
      value.data<T>()[i] =
          T(static_cast<Accumulator<T>>(content(item.name, place_of(item.part, item.from + i))));
    }
  });
}

void expect_filled(const StateItem& item, const std::string& what) {
  const std::vector<double> got = test::values(item.value);
  for (size_t i = 0; i < got.size(); ++i) {
    const double want =
        content(item.name, place_of(item.part, item.from + static_cast<int64_t>(i)));
    ASSERT_EQ(got[i], want) << what << ": " << item.name << ", element " << i;
  }
}

// Saves what `ranks` have as the checkpoint of step 1.
void save(const std::filesystem::path& dir, const std::deque<Rank>& ranks) {
  std::deque<CheckpointSaver> savers;
  const auto size = static_cast<int>(ranks.size());
  for (int r = 0; r < size; ++r) {
    savers.emplace_back(CheckpointDirectory(dir), r, size, CheckpointSaver::Retention{}, nullptr);
    Manifest header;
    header.step = 1;
    savers.back().start(header, ranks[static_cast<size_t>(r)].items);
  }
  for (CheckpointSaver& saver : savers) {
    saver.join();
    ASSERT_EQ(saver.phase(), CheckpointSaver::Phase::kWritten) << saver.error();
  }
  for (CheckpointSaver& saver : savers) {
    saver.publish();
    saver.join();
    ASSERT_EQ(saver.phase(), CheckpointSaver::Phase::kIdle) << saver.error();
  }
}

std::set<std::string> names_of(const std::deque<Rank>& ranks) {
  std::set<std::string> names;
  for (const Rank& rank : ranks) {
    for (const StateItem& item : rank.items) names.insert(item.name);
  }
  return names;
}

void load(const std::filesystem::path& dir, std::deque<Rank>& ranks) {
  const auto checkpoint = CheckpointDirectory(dir).at(1);
  const Manifest manifest = read_manifest(checkpoint);
  const std::set<std::string> names = names_of(ranks);
  for (Rank& rank : ranks) load_state(checkpoint, manifest, rank.items, names);
}

std::vector<Layout> layouts_of(int ranks) {
  std::vector<Layout> all;
  for (int model = 1; model <= ranks; ++model) {
    if (ranks % model != 0) continue;
    for (const bool zero : {false, true}) all.push_back({ranks, model, zero});
  }
  return all;
}

TEST(TrainingState, WhatNRanksSaveMRanksLoad) {
  const Config config = config_of(MatrixOptimizer::kMuon);
  size_t turn = 0;
  for (int writers = 1; writers <= 8; ++writers) {
    for (const Layout& from : layouts_of(writers)) {
      const test::TempDir dir;
      std::deque<Rank> saved = ranks_of(from, config, DType::kBF16);
      for (const Rank& rank : saved) std::ranges::for_each(rank.items, fill);
      save(dir.path(), saved);
      for (int readers = 1; readers <= 8; ++readers) {
        const std::vector<Layout> all = layouts_of(readers);
        const Layout& to = all[turn++ % all.size()];
        std::deque<Rank> loaded = ranks_of(to, config, DType::kBF16);
        load(dir.path(), loaded);
        for (const Rank& rank : loaded) {
          for (const StateItem& item : rank.items) {
            expect_filled(item, from.text() + " to " + to.text());
          }
        }
        EXPECT_EQ(names_of(loaded), names_of(saved));
      }
    }
  }
}

// The ranks tell each other which experts they have, so none is taken for one too many.
TEST(TrainingState, RanksFindACheckpointTogether) {
  const Config config = config_of(MatrixOptimizer::kAurora);
  const test::TempDir dir;
  const CheckpointDirectory checkpoints(std::filesystem::path(dir.path()) / "checkpoints");
  std::deque<Rank> saved = ranks_of({3, 3, true}, config);
  for (const Rank& rank : saved) std::ranges::for_each(rank.items, fill);
  save(std::filesystem::path(dir.path()) / "checkpoints", saved);
  for (const Layout& layout : {Layout{4, 2, false}, {4, 4, true}, {1, 1, false}}) {
    run_on_threads(layout.ranks, [&](Group& world) {
      const Rank rank(layout, world.rank(), config, DType::kF32);
      const auto manifest =
          find_checkpoint({checkpoints, dir.path(), Resume::kMust, config, {}}, world, rank.items,
                          [](const std::string& line) { ADD_FAILURE() << line; });
      ASSERT_TRUE(manifest.has_value());
      for (const StateItem& item : rank.items) expect_filled(item, layout.text());
    });
  }
}

TEST(TrainingState, EveryElementIsStoredOnceByEvenShares) {
  for (const Layout& layout : layouts_of(6)) {
    int64_t most = 0, least = int64_t{1} << 40, all = 0;
    const std::deque<Rank> ranks = ranks_of(layout, config_of(MatrixOptimizer::kAdamw));
    for (int r = 0; r < layout.ranks; ++r) {
      int64_t bytes = 0;
      const std::vector<StateItem>& items = ranks[static_cast<size_t>(r)].items;
      for (const size_t i : stored_by(r, items)) {
        bytes += static_cast<int64_t>(items[i].value.bytes());
      }
      most = std::max(most, bytes);
      least = std::min(least, bytes);
      all += bytes;
    }
    std::deque<Rank> alone = ranks_of({1, 1, false}, config_of(MatrixOptimizer::kAdamw));
    int64_t want = 0, largest = 0;
    for (const StateItem& item : alone[0].items) {
      const auto bytes = static_cast<int64_t>(item.value.bytes());
      want += bytes;
      largest = std::max(largest, bytes);
    }
    EXPECT_EQ(all, want) << layout.text();
    if (layout.zero) continue;  // in so small buckets padding shows
    EXPECT_LE(most - least, 2 * largest) << layout.text();
  }
}

TEST(TrainingState, ATensorThatNoRankHasIsRefused) {
  const test::TempDir dir;
  const Config config = config_of(MatrixOptimizer::kMuon);
  save(dir.path(), ranks_of({2, 2, false}, config));
  std::deque<Rank> loaded = ranks_of({2, 2, false}, config);
  const auto checkpoint = CheckpointDirectory(dir.path()).at(1);
  const Manifest manifest = read_manifest(checkpoint);
  try {  // the other rank's experts are not said to be anywhere
    load_state(checkpoint, manifest, loaded[0].items);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kConfig);
    EXPECT_NE(std::string(error.what()).find("expert.5.up"), std::string::npos) << error.what();
  }
}

// First values do not depend on who owns what; all ranks have all values.
TEST(TrainingState, FirstValuesAreThoseOfOneRank) {
  for (const DType compute : {DType::kF32, DType::kBF16, DType::kF64}) {
    const Config config = config_of(MatrixOptimizer::kMuon);
    std::deque<Rank> alone = ranks_of({1, 1, false}, config, compute);
    std::map<std::string, Tensor> masters, values;
    alone[0].model.visit([&](Param& w) {
      masters[w.name] = w.master;
      values[w.name] = w.value;
    });
    for (const Layout& layout : {Layout{3, 1, true}, {4, 2, true}, {6, 3, false}}) {
      for (Rank& rank : ranks_of(layout, config, compute)) {
        rank.model.visit([&](Param& w) {
          const auto expect_same = [&](const Tensor& got, int64_t from, const Tensor& want) {
            const std::vector<double> mine = test::values(got), all = test::values(want);
            for (size_t i = 0; i < mine.size(); ++i) {
              const int64_t place = place_of(w.part(), from + static_cast<int64_t>(i));
              ASSERT_EQ(mine[i], all[static_cast<size_t>(place)]) << layout.text() << w.name;
            }
          };
          expect_same(w.master, w.master_begin, masters.at(w.name));
          expect_same(w.value, 0, values.at(w.name));
          EXPECT_EQ(w.value.shape(), w.shape);
        });
      }
    }
  }
}

// What is promised is what is taken: without the few numbers of Muon's moments.
TEST(TrainingState, TakesTheMemoryThatItNeeds) {
  for (const MatrixOptimizer matrix : {MatrixOptimizer::kAdamw, MatrixOptimizer::kAurora}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const Layout& layout : layouts_of(4)) {
        const Rank rank(layout, layout.ranks - 1, config_of(matrix), compute);
        Synthetic model(layout.model, layout.model - 1, compute);
        const MemoryNeed need = training_memory(model, layout.options(layout.ranks - 1), matrix);
        double live = 0;
        for (const auto& [tag, bytes] : rank.pool->live_by_tag())
          live += static_cast<double>(bytes);
        EXPECT_EQ(need.weights + need.gradients + need.moments, live) << layout.text();
      }
    }
  }
}

}  // namespace
}  // namespace anabranch
