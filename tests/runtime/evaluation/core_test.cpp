// The CORE suite: its files, its prompts, its scores.
#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/evaluation/core_bundle.h"
#include "runtime/evaluation/core_prompts.h"
#include "runtime/evaluation/core_suite.h"
#include "runtime/evaluation/csv.h"
#include "tests/data/folder.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

using testing::ElementsAre;

TEST(Csv, TakesQuotesCommasAndLineFeeds) {
  const auto records = parse_csv("a,b\r\n\"x, \"\"y\"\"\nz\",\n\n1,2", "t.csv");
  ASSERT_EQ(records.size(), 3U);
  EXPECT_THAT(records[0], ElementsAre("a", "b"));
  EXPECT_THAT(records[1], ElementsAre("x, \"y\"\nz", ""));
  EXPECT_THAT(records[2], ElementsAre("1", "2"));
  for (const char* bad : {"a\nb,\"c", "a\n\"b\"c", "a\nb\"c"}) {
    test::expect_error(Fault::kData, {"t.csv:2: "}, [&] { parse_csv(bad, "t.csv"); });
  }
}

// A small bundle in the published layout.
class CoreBundle : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(dir_ / "eval_data/a");
    write("core.yaml",
          "icl_tasks:\n"
          "-\n  label: capitals\n  dataset_uri: a/capitals.jsonl\n  num_fewshot: [2]\n"
          "  icl_task_type: multiple_choice\n  continuation_delimiter: \"\\nAnswer: \"\n"
          "-\n  label: who\n  dataset_uri: a/who.jsonl\n  num_fewshot: [0]\n"
          "  icl_task_type: schema\n"
          "-\n  label: ends\n  dataset_uri: a/ends.jsonl\n  num_fewshot: [1, 5]\n"
          "  icl_task_type: language_modeling\n  has_categories: true\n");
    write("eval_meta_data.csv",
          "Eval Task,Task Category,Task Type,#shots,#datapoints,Random baseline,Centered Metric?,"
          "Description\n"
          "capitals,world,multiple choice,2,3,33.3,yes,\"Capitals, of \"\"countries\"\"\"\n"
          "who,language,schema,0,1,50,yes,x\nends,language,lm,1,2,0,yes,x\n");
    write("eval_data/a/capitals.jsonl",
          "{\"query\": \"France?\", \"choices\": [\"Paris\", \"Rome\"], \"gold\": 0}\n"
          "{\"query\": \"Italy?\", \"choices\": [\"Paris\", \"Rome\"], \"gold\": 1}\n"
          "{\"query\": \"Spain?\", \"choices\": [\"Oslo\", \"Madrid\", \"Bern\"], \"gold\": 1}\n");
    write("eval_data/a/who.jsonl",
          "{\"context_options\": [\"The cup\", \"The table\"], \"continuation\": \"broke.\", "
          "\"gold\": 0}\n");
    write("eval_data/a/ends.jsonl",
          "{\"context\": \"\\u00a0one two \\n\", \"continuation\": \"three\"}\n"
          "{\"context\": \"red green\", \"continuation\": \" blue\"}\n");
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
  }

  [[nodiscard]] std::string path() const { return dir_.path().string(); }

  [[nodiscard]] CoreTask task(const std::string& label) const {
    return read_core_tasks(path(), {label}).at(0);
  }

  // What is wrong with a bundle of which one file is another.
  void expect_bad(const std::string& name, const std::string& text, const std::string& label,
                  std::initializer_list<std::string> said) const {
    std::ifstream in(dir_ / name);
    const std::string before(std::istreambuf_iterator<char>(in), {});
    write(name, text);
    test::expect_error(Fault::kData, said, [&] { read_core_questions(task(label)); });
    write(name, before);
  }

  const test::TempDir dir_;
};

TEST_F(CoreBundle, TellsItsTasks) {
  const auto tasks = read_core_tasks(path());
  ASSERT_EQ(tasks.size(), 3U);
  EXPECT_EQ(tasks[0].shots, 2);
  EXPECT_EQ(tasks[0].delimiter, "\nAnswer: ");
  EXPECT_EQ(tasks[0].baseline, 33.3);
  EXPECT_EQ(tasks[1].delimiter, " ");
  EXPECT_EQ(tasks[2].shots, 1);
  EXPECT_EQ(tasks[2].type, CoreTaskType::kLanguageModeling);
  EXPECT_EQ(read_core_tasks(path(), {"who"}).size(), 1U);
  EXPECT_EQ(read_core_questions(tasks[0])[2].gold, 1U);
}

TEST_F(CoreBundle, SaysWhatIsWrongAndWhere) {
  const std::string questions = "eval_data/a/capitals.jsonl";
  const std::string good = R"({"query": "q", "choices": ["a", "b"], "gold": 0})";
  for (const auto& [line, said] : std::vector<std::pair<std::string, std::string>>{
           {"{", "no JSON object"},
           {"[1]", "no JSON object"},
           {"{\"query\": \"\xff\"}", "no JSON object in UTF-8"},
           {R"({"query": 3, "choices": ["a", "b"], "gold": 0})", "no text \"query\""},
           {R"({"query": "q", "choices": ["a"], "gold": 0})", "no list of two texts"},
           {R"({"query": "q", "choices": ["a", 1], "gold": 0})", "no list of two texts"},
           {R"({"query": "q", "choices": ["a", "b"]})", "no whole number \"gold\""},
           {R"({"query": "q", "choices": ["a", "b"], "gold": 2})", "\"gold\" is 2 of 2 choices"},
           {R"({"query": "q", "choices": ["a", "b"], "gold": -1})", "\"gold\" is -1"}}) {
    expect_bad(questions, join(good, "\n", line, "\n"), "capitals", {"capitals.jsonl:2: ", said});
  }
  expect_bad(questions, "\n", "capitals", {"no question"});
  expect_bad(questions, good + "\n" + good, "capitals", {"2 questions; capitals shows 2 others"});
  expect_bad(questions, std::string((16U << 20U) + 2, 'x'), "capitals", {"capitals.jsonl:1"});
  expect_bad("core.yaml", "icl_tasks: []\n", "who", {"no list icl_tasks"});
  const std::string start = "icl_tasks:\n- label: who\n  num_fewshot: [0]\n";
  expect_bad("core.yaml", start, "who", {"core.yaml:2", "no dataset_uri"});
  expect_bad("core.yaml", start + "  dataset_uri: a\n  icl_task_type: schemo\n", "who",
             {"icl_task_type is \"schemo\"", "schema"});
  expect_bad("core.yaml", start + "  dataset_uri: ../a\n  icl_task_type: schema\n", "who",
             {"leaves the bundle"});
  expect_bad("eval_meta_data.csv", "Eval Task,Random baseline\nwho,x\n", "who", {"baseline is"});
  expect_bad("eval_meta_data.csv", "Eval Task,Random baseline\nwho\n", "who", {"record 2"});
  expect_bad("eval_meta_data.csv", "Eval Task,Baseline\n", "who", {"no column"});
  expect_bad("eval_meta_data.csv", "Eval Task,Random baseline\n", "who", {"has no baseline of"});
  test::expect_error(Fault::kData, {"no task \"whom\"", "who"}, [&] { (void)task("whom"); });
  test::expect_error(Fault::kData, {"no such file"}, [&] { read_core_tasks(path() + "/none"); });
}

// As nanochat renders them, worked out by hand from its templates.
TEST_F(CoreBundle, PromptsAreThoseOfTheSource) {
  const CoreTask capitals = task("capitals"), who = task("who"), ends = task("ends");
  const auto of_capitals = read_core_questions(capitals);
  const std::vector<const CoreQuestion*> shots = {&of_capitals[2], &of_capitals[1]};
  const std::string shown = "Spain?\nAnswer: Madrid\n\nItaly?\nAnswer: Rome\n\n";
  EXPECT_THAT(core_prompts(capitals, of_capitals[0], shots),
              ElementsAre(shown + "France?\nAnswer: Paris", shown + "France?\nAnswer: Rome"));
  EXPECT_THAT(core_prompts(who, read_core_questions(who)[0], {}),
              ElementsAre("The cup broke.", "The table broke."));
  const auto of_ends = read_core_questions(ends);
  const std::vector<const CoreQuestion*> shot = {&of_ends[1]};
  EXPECT_THAT(core_prompts(ends, of_ends[0], shot),
              ElementsAre("red green  blue\n\none two", "red green  blue\n\none two three"));
}

TEST(CorePrompts, StripAsPython) {
  EXPECT_EQ(python_strip("\xe3\x80\x80 \x1c a b\xc2\x85\xe2\x80\x8a\n"), "a b");
  EXPECT_EQ(python_strip("\xe2\x80\x8b!"), "\xe2\x80\x8b!");  // no space to Python
  EXPECT_EQ(python_strip(" \t\xc2\xa0"), "");
}

TextScore score_of(double mean) { return {mean, std::isnan(mean) ? 0 : 1, false}; }

TEST(CoreScores, TheLowestMeanWinsAsPythonsMinimumHasIt) {
  const double none = std::nan("");
  const CoreTask task;
  const auto choice = [&](const std::vector<double>& means) {
    std::vector<TextScore> scores;
    for (const double mean : means) scores.push_back(score_of(mean));
    return core_choice(task, scores);
  };
  EXPECT_EQ(choice({3, 1, 2}), 1U);
  EXPECT_EQ(choice({3, 1, 1}), 1U);
  EXPECT_EQ(choice({none, 1, 2}), 0U);
  EXPECT_EQ(choice({3, none, 2}), 2U);
}

TEST(CoreScores, AreCentredByGuessing) {
  EXPECT_NEAR(centred_accuracy(0.285012, 20), 0.106265, 5e-7);
  EXPECT_NEAR(centred_accuracy(0.2523, 9.1), 0.177448, 5e-7);
  EXPECT_NEAR(centred_accuracy(0.542813, 62), -0.203124, 5e-7);
  EXPECT_NEAR(centred_accuracy(0.304023, 25), 0.072031, 5e-7);
  std::vector<CoreTaskResult> results(3);
  results[0].task.label = "a";
  results[1].task.label = "boolq";
  results[2].task.label = "c";
  results[0].centred = 0.5;
  results[1].centred = -0.2;
  results[2].centred = 0.1;
  EXPECT_DOUBLE_EQ(core_metric(results), 0.4 / 3);
  EXPECT_DOUBLE_EQ(core_metric(results, "boolq"), 0.3);
  EXPECT_TRUE(std::isnan(core_metric({})));
}

}  // namespace
}  // namespace anabranch
