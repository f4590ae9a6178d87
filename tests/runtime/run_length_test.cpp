// Runs whose length is given in epochs, and checkpoints by words seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/run_data.h"
#include "tests/data/shard/text_set.h"
#include "tests/runtime/training.h"
#include "tests/support/checkpoints.h"
#include "tests/support/refusal.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;
using test::run_training;
using test::Training;
using test::TrainingFolder;
using testing::HasSubstr;

int64_t samples_of(const Config& config) {
  const Dataset dataset = Dataset::open(config.data.path);
  return Loader(dataset, loader_options(config, dataset)).samples_per_epoch();
}

std::string refusal(Config config) {
  return test::refusal([&] { fill_steps(config, Dataset::open(config.data.path)); });
}

TEST(Epochs, BecomeStepsOfTheScheduleAndOfTheResolvedConfiguration) {
  const TrainingFolder folder;
  Config config = folder.config("run", 0);
  const int64_t samples = samples_of(config);
  config.train.epochs = 3;
  const Dataset dataset = Dataset::open(config.data.path);
  fill_steps(config, dataset);
  const int64_t steps = (3 * samples + 11) / 12;
  EXPECT_EQ(config.train.steps, steps);
  EXPECT_EQ(plan_batch(config, 1).steps, steps);
  EXPECT_THAT(dump_config(config), HasSubstr(join("steps: ", steps)));

  Config again = parse_config(dump_config(config), "c.yaml");
  fill_steps(again, dataset);
  EXPECT_EQ(again, config);

  Config same = folder.config("same", steps);
  const Training run = run_training(config), by_steps = run_training(same);
  EXPECT_EQ(run.losses(), by_steps.losses());
  EXPECT_EQ(run.steps[0].back().total_steps, steps);
  EXPECT_EQ(run.steps[0].back().learning_rate, by_steps.steps[0].back().learning_rate);
}

TEST(Epochs, AreCountedOverTheSourcesThatAreRead) {
  const test::TempDir dir;
  for (const int source : {1, 2}) {
    test::spill((dir / join(source, ".jsonl")).string(),
                test::json_lines(test::documents(50 * source, 7, 30)));
  }
  BuildOptions options = test::build_options((dir / "data").string(), {});
  options.sources.clear();
  for (const char* name : {"1", "2"}) {
    options.sources.push_back({name, {(dir / name).string() + ".jsonl"}, {}, 0});
  }
  build_shards(test::byte_tokenizer(), options);
  Config config;
  config.data.path = options.out;
  config.model.context = 8;
  config.train.batch_tokens = 8;
  const int64_t both = samples_of(config);
  config.data.sources = {{"1", 1}};
  const int64_t first = samples_of(config);
  config.data.sources = {{"2", 1}};
  EXPECT_EQ(first + samples_of(config), both);
}

TEST(Epochs, PartsAndRounding) {
  const TrainingFolder folder;
  Config config = folder.config("run", 0);
  const auto steps = [&](double epochs) {
    Config of = config;
    of.train.epochs = epochs;
    of.optim.warmup_steps = 0;
    fill_steps(of, Dataset::open(of.data.path));
    return of.train.steps;
  };
  const int64_t samples = samples_of(config);
  EXPECT_EQ(steps(1e-9), 1);
  EXPECT_EQ(steps(0.5), (samples + 23) / 24);
  EXPECT_EQ(steps(12), samples);
}

TEST(Epochs, ThatDoNotFitAreRefusedByTheirKeys) {
  const TrainingFolder folder;
  Config config = folder.config("run", 7);
  config.train.epochs = 3;
  EXPECT_THAT(refusal(config), HasSubstr("train.steps 7 and train.epochs 3 are both set"));
  config.train.steps = 0;
  config.optim.warmup_steps = 1000;
  EXPECT_THAT(refusal(config), HasSubstr("optim.warmup_steps 1000 is more than the "));
}

TEST(Epochs, MoreOfThemAreToldWhenResumed) {
  const TrainingFolder folder;
  Config config = folder.config("run", 0);
  const Dataset dataset = Dataset::open(config.data.path);
  config.train.epochs = 0.3;
  fill_steps(config, dataset);
  run_training(config);
  config.train.steps = 0;
  config.train.epochs = 0.6;
  fill_steps(config, dataset);
  const Training more = run_training(config);
  EXPECT_THAT(more.events, testing::Contains(HasSubstr("train.epochs: 0.3 -> 0.6")));
  EXPECT_EQ(more.steps[0].back().step, config.train.steps);
}

std::vector<std::string> told_of_rates(const Training& run) {
  std::vector<std::string> lines;
  for (const std::string& event : run.events) {
    if (event.find("learning rate") != std::string::npos) lines.push_back(event);
  }
  return lines;
}

// The steps of a run that was done, and then given a greater length.
TEST(Extension, OfAConstantRateIsTheLongRun) {
  const TrainingFolder folder;
  const auto config = [&](const char* run, int64_t steps) {
    Config c = folder.config(run, steps);
    c.optim.schedule = ScheduleForm::kConstant;
    return c;
  };
  run_training(config("run", 4));
  const Training more = run_training(config("run", 7));
  EXPECT_THAT(told_of_rates(more), testing::IsEmpty());
  const std::vector<double> whole = run_training(config("whole", 7)).losses();
  EXPECT_EQ(more.losses(), std::vector<double>(whole.begin() + 4, whole.end()));
}

// A warm-down that has not begun yet is put off.
TEST(Extension, BeforeTheWarmDownIsTheLongRun) {
  const TrainingFolder folder;
  const auto config = [&](const char* run, int64_t steps) {
    Config c = folder.config(run, steps);
    c.optim.schedule = ScheduleForm::kLinear;
    c.optim.warmdown = 0.5;
    return c;
  };
  const auto stop = [](int, int64_t step, StopRequest& request) {
    if (step == 3) request.raise(StopKind::kRequeue);
  };
  run_training(config("run", 8), {.after_step = stop});
  const Training more = run_training(config("run", 10));
  ASSERT_EQ(more.steps[0].front().step, 5);
  EXPECT_THAT(told_of_rates(more), testing::IsEmpty());
  const std::vector<double> whole = run_training(config("whole", 10)).losses();
  EXPECT_EQ(more.losses(), std::vector<double>(whole.begin() + 4, whole.end()));
}

TEST(Extension, OfARateThatHasFallenSaysWhereItGoesOn) {
  const TrainingFolder folder;
  const auto config = [&](int64_t steps) {
    Config c = folder.config("run", steps);
    c.optim.schedule = ScheduleForm::kLinear;
    c.optim.warmup_steps = 0;
    c.optim.warmdown = 0.5;
    c.optim.min_lr_ratio = 0;
    return c;
  };
  run_training(config(4));  // shares 1, 1, 1, 1/2
  const Training more = run_training(config(10));
  EXPECT_THAT(
      told_of_rates(more),
      testing::ElementsAre("resume: the learning rate was planned for 4 steps and now is for "
                           "10: it goes on from step 4 at 100% of its peak, after 50%; a run "
                           "of 10 from the start would have had 100%"));
  EXPECT_EQ(more.steps[0][0].learning_rate, config(10).optim.lr);
  EXPECT_EQ(more.steps[0].back().step, 10);
}

// The steps after which the marks are reached, by the rule: the words of the samples so far.
std::map<std::string, int64_t> expected_marks(const Config& config) {
  const Dataset dataset = Dataset::open(config.data.path);
  const auto words = static_cast<double>(dataset.sources()[0].train_words);
  const auto samples = static_cast<double>(samples_of(config));
  std::map<std::string, int64_t> marks;
  for (const int64_t mark : config.checkpoint.words) {
    int64_t step = 1;
    while (std::floor(static_cast<double>(12 * step) * words / samples) <
           static_cast<double>(mark)) {
      ++step;
    }
    if (step <= config.train.steps) marks[join("words-", mark)] = step;
  }
  return marks;
}

std::map<std::string, int64_t> found_marks(const Config& config) {
  std::map<std::string, int64_t> marks;
  for (const auto& entry : fs::directory_iterator(fs::path(config.run.dir) / "checkpoints")) {
    if (entry.is_symlink()) {
      verify_checkpoint(entry.path());
      marks[entry.path().filename().string()] = read_manifest(entry.path()).step;
    }
  }
  return marks;
}

Config with_marks(const TrainingFolder& folder, const std::string& run) {
  Config config = folder.config(run, 30);
  config.checkpoint.words = {1, 2, 50, 109, 200, 100000};
  config.checkpoint.keep_last = 1;
  config.checkpoint.every_steps = 7;
  return config;
}

TEST(WordMarks, AreKeptAtTheFirstStepThatHasSeenThem) {
  const TrainingFolder folder;
  for (const int ranks : {1, 2, 3}) {
    const Config config = with_marks(folder, join("run-", ranks));
    const auto want = expected_marks(config);
    ASSERT_EQ(want.size(), 5U);
    run_training(config, {.ranks = ranks});
    EXPECT_EQ(found_marks(config), want);
    std::set<int64_t> kept{30};
    for (const auto& [name, step] : want) kept.insert(step);
    EXPECT_EQ(test::saved_steps(config.run.dir),
              (std::vector<int64_t>{kept.rbegin(), kept.rend()}));
    const Dataset dataset = Dataset::open(config.data.path);
    const Manifest last = read_manifest(test::checkpoints_of(config.run.dir).at(30));
    EXPECT_EQ(last.counters.at("words").front(),
              static_cast<double>(
                  Loader(dataset, loader_options(config, dataset)).words_before(12 * 30)));
  }
}

// A stop before, at and after each mark makes no difference to where they are.
TEST(WordMarks, SurviveAResumeAcrossThem) {
  const TrainingFolder folder;
  const Config whole = with_marks(folder, "whole");
  const auto want = expected_marks(whole);
  run_training(whole);
  for (const int64_t stop : {1, 2, 4, 5, 6, 10, 16}) {
    Config config = with_marks(folder, join("stopped-", stop));
    config.checkpoint.every_steps = 0;
    const Training first = run_training(config, {.after_step = [&](int, int64_t step, auto& wish) {
                                          if (step == stop) wish.raise(StopKind::kRequeue);
                                        }});
    EXPECT_EQ(first.codes[0], static_cast<int>(Fault::kSaved));
    run_training(config, {.resume = Resume::kMust});
    EXPECT_EQ(found_marks(config), want) << stop;
    for (const auto& [name, step] : want) {
      EXPECT_EQ(test::checkpoint_state(config.run.dir, step).at("next sample"), join(12 * step));
    }
    EXPECT_EQ(test::checkpoint_state(config.run.dir, 30),
              test::checkpoint_state(whole.run.dir, 30));
  }
}

TEST(WordMarks, PassedBeforeTheyWereAskedForAreTold) {
  const TrainingFolder folder;
  Config config = folder.config("run", 10);
  run_training(config);
  config.train.steps = 12;
  config.checkpoint.words = {5};
  EXPECT_THAT(run_training(config).events,
              testing::Contains(HasSubstr("checkpoint.words 5 was passed before step 10")));
}

TEST(WordMarks, NeedADataSetThatKnowsItsWords) {
  const TrainingFolder folder;
  Config config = with_marks(folder, "run");
  const std::string path = config.data.path + "/dataset.json";
  std::string text = test::slurp(path);
  const size_t at = text.find("\"train_words\"");
  text.erase(at, text.find('\n', at) - at);
  test::spill(path, text);
  EXPECT_THROW(
      {
        try {
          run_training(config);
        } catch (const Error& error) {
          EXPECT_EQ(error.fault(), Fault::kData);
          EXPECT_THAT(error.what(), HasSubstr("checkpoint.words is set, but"));
          throw;
        }
      },
      Error);
  config.checkpoint.words.clear();
  EXPECT_EQ(run_training(config).codes[0], 0);
}

}  // namespace
}  // namespace anabranch
