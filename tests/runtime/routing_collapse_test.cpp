// A job whose router sends every token to one expert: the other experts have none, and the ranks
// that only have those compute without a row. Its losses are those of one rank.
#include <gtest/gtest.h>

#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/saver.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"
#include "tests/support/tolerance.h"

namespace anabranch {
namespace {

struct Layout {
  int ranks, model;
  int64_t micro_batch;
};

Config config_of(const test::TrainingFolder& folder, const std::string& run, const Layout& layout) {
  Config c = folder.config(run, 2);
  c.model.type = ModelType::kKappaMoe;
  c.model.kappa.experts = 4;
  c.model.kappa.top_k = 1;
  c.model.kappa.moe_first = 1;
  c.model.kappa.pool_sequences = 8;
  c.optim.weight_decay = 0;
  c.train.precision = Precision::kFp64;
  c.train.batch_tokens = c.model.context * 24;
  c.train.micro_batch = layout.micro_batch;
  c.train.log_every = 1;
  c.parallel.model.value = layout.model;
  fill_derived(c);
  return c;
}

// Saves a checkpoint anew, with a router that tells no token from another: among equal scores the
// first expert wins.
void blind_the_router(const std::string& run, int64_t step) {
  const CheckpointDirectory directory = test::checkpoints_of(run);
  const Manifest manifest = read_manifest(directory.at(step));
  std::map<std::string, StateItem> whole;
  for (const CheckpointEntry& e : manifest.entries) {
    whole.emplace(e.name, StateItem::whole(e.name, Tensor(e.part.whole, e.type)));
  }
  std::vector<StateItem> items;
  for (const auto& [name, item] : whole) items.push_back(item);
  load_state(directory.at(step), manifest, items);
  int routers = 0;
  for (StateItem& item : items) {
    if (item.name.find("router") == std::string::npos) continue;
    item.value.fill_zero();
    ++routers;
  }
  ASSERT_GE(routers, 1);
  Manifest header = manifest;
  header.entries.clear();
  CheckpointSaver saver(directory, 0, 1, {3, 0}, nullptr);
  saver.start(header, items);
  saver.join();
  ASSERT_EQ(saver.phase(), CheckpointSaver::Phase::kWritten) << saver.error();
  saver.publish();
  saver.join();
  ASSERT_EQ(saver.phase(), CheckpointSaver::Phase::kIdle) << saver.error();
}

// The share of the tokens that the most popular expert has in each step.
std::vector<double> most_loaded(const test::Training& run) {
  std::vector<double> shares;
  for (const StepReport& report : run.steps.front()) {
    double most = 0;
    for (const Reading& r : report.readings) {
      if (r.metric == Metric::kExpertLoad) most = std::max(most, r.value);
    }
    shares.push_back(most);
  }
  return shares;
}

TEST(RoutingCollapse, AllTokensGoToOneExpert) {
  const test::TrainingFolder folder;
  std::vector<double> alone;
  for (const Layout& layout : std::vector<Layout>{
           {1, 1, 8}, {2, 2, 4}, {3, 3, 8}, {4, 4, 2}, {4, 2, 2}, {4, 1, 2}, {8, 4, 1}}) {
    SCOPED_TRACE(join(layout.ranks, " ranks, model ", layout.model));
    const std::string name = join("run-", layout.ranks, "-", layout.model);
    test::run_training(config_of(folder, name, {1, 1, 8}));
    Config config = config_of(folder, name, layout);
    config.train.steps = 6;
    blind_the_router(config.run.dir, 2);
    const test::Training run =
        test::run_training(config, {.ranks = layout.ranks, .resume = Resume::kMust});
    ASSERT_EQ(run.codes, std::vector<int>(static_cast<size_t>(layout.ranks), 0));
    ASSERT_EQ(run.losses().size(), 4U);
    EXPECT_EQ(most_loaded(run).front(), 1);
    if (alone.empty()) alone = run.losses();
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(run.losses()[i], alone[i], test::kLayoutsF64.relative * alone[i]) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace anabranch
