// The files of monitoring/ against a real Prometheus that scrapes real runs: each expression of the
// dashboards and rules has an answer. Figures of GPUs are those of the driver's stand-in.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "monitoring/nvml.h"
#include "monitoring/run_history.h"
#include "monitoring/server.h"
#include "monitoring/targets_file.h"
#include "runtime/metrics_sink.h"
#include "tests/launch/train_job.h"
#include "tests/support/prometheus.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kMonitoring = fs::path(AB_SOURCE_DIR) / "monitoring";
const std::regex kOurs("(anabranch_[a-z0-9_]+|run(_layer)?:[a-z0-9_:]+)");
const std::regex kAlert("Anabranch[A-Z][A-Za-z]+");

std::string text_at(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> all_of(const std::string& text, const std::regex& kind) {
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), kind), none; at != none; ++at) {
    found.push_back(at->str());
  }
  return found;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// By file name.
std::map<std::string, json> dashboards() {
  std::map<std::string, json> all;
  for (const auto& entry : fs::directory_iterator(kMonitoring / "grafana/dashboards")) {
    all[entry.path().filename()] = json::parse(text_at(entry.path()));
  }
  return all;
}

// An endpoint as rank 0 of a job on a GPU has it.
class GpuRun {
 public:
  explicit GpuRun(const fs::path& targets)
      : lines_((targets.parent_path() / "gpu.jsonl").string(), [](const std::string&) {}) {
    setenv("FAKE_NVML", "1", 1);
    fs::create_directories(targets);
    file_.emplace((targets / "gpu.json").string(), server_.address(), kLabels, warn_);
    thread_ = std::jthread([this](const std::stop_token& ended) { steps(ended); });
  }

  ~GpuRun() { unsetenv("FAKE_NVML"); }

  GpuRun(const GpuRun&) = delete;
  GpuRun& operator=(const GpuRun&) = delete;

 private:
  void steps(const std::stop_token& ended) {
    Nvml nvml(AB_FAKE_NVML);
    const Nvml::Handle gpu = nvml.find("0000:3b:00.0");
    MetricsSink sink(metrics_, history_, lines_);
    metrics_.set(Metric::kRanks, 1);
    StepReport report;
    for (; !ended.stop_requested(); ++report.step) {
      report.gpu.clear();
      for (const double v : nvml.read(gpu)) report.gpu.push_back({v, v, v, std::isnan(v) ? 0 : v});
      sink.step(report);
      test::pause_for(0.1);
    }
  }

  static inline const Labels kLabels{
      {"run", "gpu"}, {"sweep", "none"}, {"model", "gpt2"}, {"precision", "bf16"}, {"job", "none"}};
  Warn warn_ = [](const std::string& text) { ADD_FAILURE() << text; };
  Metrics metrics_{kLabels, {"all"}, {}, Metrics::kLabelLimit, true};
  JsonLines lines_;
  RunHistory history_{{"all"}};
  MetricsServer server_{metrics_, history_, "127.0.0.1:0", warn_};
  std::optional<TargetsFile> file_;
  std::jthread thread_;
};

// What is wrong with a dashboard, seen from the data that a Prometheus has.
class Questions {
 public:
  explicit Questions(const test::Prometheus& prometheus) : prometheus_(prometheus) {
    const json names = prometheus.get("label/__name__/values");
    for (const std::string name : names["data"]) known_.insert(name);
    const json groups = prometheus.get("rules")["data"]["groups"];
    for (const json& group : groups) {
      for (const json& rule : group["rules"]) {
        if (rule["type"] == "alerting") alerts_[rule["name"]] = rule["query"];
      }
    }
  }

  [[nodiscard]] const std::map<std::string, std::string>& alerts() const { return alerts_; }

  // Names in an expression that Prometheus has never seen.
  [[nodiscard]] std::vector<std::string> unknown(const std::string& expression) const {
    std::vector<std::string> names = all_of(expression, kOurs);
    std::erase_if(names, [&](const std::string& name) { return known_.contains(name); });
    return names;
  }

  [[nodiscard]] std::vector<std::string> of(const json& dashboard) const {
    std::vector<std::string> wrong;
    for (const json& variable : dashboard["templating"]["list"]) {
      if (variable["type"] == "query") of_variable(variable, wrong);
    }
    for (const json& panel : dashboard["panels"]) {
      const std::string where = panel["title"];
      for (const json& target : panel.value("targets", json::array())) {
        const std::string fault = of_target(target);
        if (!fault.empty()) wrong.push_back(join(where, ": ", fault, ": ", target["expr"].dump()));
      }
      of_thresholds(panel, wrong);
    }
    return wrong;
  }

 private:
  // With everything chosen.
  static std::string chosen(std::string expression) {
    for (const auto& [name, value] : {std::pair{"$__rate_interval", "20s"},
                                      {"$__range", "5m"},
                                      {"$sweep", ".*"},
                                      {"$run", ".*"},
                                      {"$layer", ".*"}}) {
      expression = replaced(std::move(expression), name, value);
    }
    return expression;
  }

  void of_variable(const json& variable, std::vector<std::string>& wrong) const {
    const std::string query = chosen(variable["query"]);
    const std::regex form(R"(label_values\((.*), [a-z]+\))");
    std::smatch parts;
    if (!std::regex_match(query, parts, form) || prometheus_.now(parts[1]).empty()) {
      wrong.push_back(join(variable["name"].dump(), ": nothing to choose by ", query));
    }
  }

  [[nodiscard]] std::string of_target(const json& target) const {
    const std::string expression = chosen(target["expr"]);
    if (expression.find('$') != std::string::npos) return "a variable that there is not";
    const std::vector<std::string> names = unknown(expression);
    if (!names.empty()) return "unknown metric " + names[0];
    const auto now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const json answer = target.value("instant", false)
                            ? prometheus_.get("query", {{"query", expression}})
                            : prometheus_.get("query_range", {{"query", expression},
                                                              {"start", std::to_string(now - 10)},
                                                              {"end", std::to_string(now)},
                                                              {"step", "1"}});
    if (answer.value("status", "") != "success") return answer.value("error", "no answer");
    for (const json& series : answer["data"]["result"]) {
      const json values = series.contains("values") ? series["values"] : json{series["value"]};
      for (const json& value : values) {
        if (value[1] != "NaN") return "";
      }
    }
    return "no data";
  }

  // A panel's limits are those of the alerts that it names.
  void of_thresholds(const json& panel, std::vector<std::string>& wrong) const {
    const std::string said = panel.value("description", "");
    std::string queries;
    for (const std::string& name : all_of(said, kAlert)) {
      if (!alerts_.contains(name)) {
        wrong.push_back(join(panel["title"].dump(), ": no alert ", name));
      } else {
        queries += alerts_.at(name) + "\n";
      }
    }
    const json::json_pointer steps("/fieldConfig/defaults/thresholds/steps");
    if (!panel.contains(steps)) return;
    for (const json& step : panel[steps]) {
      if (step["value"].is_null()) continue;
      // Of whole numbers, 1 or more are more than 0.
      const std::string value = step["value"] == 1 ? "(0|1)" : step["value"].dump();
      if (!std::regex_search(queries, std::regex("([<>]|==) " + value + "(\\D|$)"))) {
        wrong.push_back(
            join(panel["title"].dump(), ": no alert has its limit ", step["value"].dump()));
      }
    }
  }

  const test::Prometheus& prometheus_;
  std::set<std::string> known_;
  std::map<std::string, std::string> alerts_;
};

class TrainDashboards : public TrainJobs {
 protected:
  // The files of monitoring/ beside runs/ as in the tree, with times of a second.
  void lay_out() {
    for (const char* folder : {"runs/sizes", "runs/targets", "monitoring"}) {
      fs::create_directories(path(folder));
    }
    fs::copy(kMonitoring / "rules", path("monitoring/rules"), fs::copy_options::recursive);
    std::string config = text_at(kMonitoring / "prometheus.yml");
    config = replaced(replaced(std::move(config), "interval: 15s", "interval: 1s"), "interval: 10s",
                      "interval: 1s");
    std::ofstream(path("monitoring/prometheus.yml")) << config;
    std::ofstream(path("sizes.yaml"))
        << "base: run.yaml\nvocabulary: 300\nset: {data.path: d, train.steps: 30}\nseeds: [1, 2]\n"
           "groups:\n  - {family: s, set: {model.type: cmollm}}\n";
    std::ofstream(path("runs/sizes/sweep.json"))
        << must({"sweep", "expand", path("sizes.yaml"), "--json"});
    // Not every family has dropout, and one masks tokens.
    const std::string plain = replaced(text_of("run.yaml"), ", dropout: 0.1", "");
    std::ofstream(path("run.yaml")) << plain;
    must({"tokenizer", "train", path("text.txt"), "--document", "line", "--vocab", "300",
          "--special", "<|bos|>", "--special", "[MASK]", "--out", path("masks.json")});
    must({"shard", "build", path("text.txt"), "--document", "line", "--tokenizer",
          path("masks.json"), "--out", path("masked"), "--validation", "0.1"});
    // A job that was killed leaves its file behind.
    std::ofstream(path("runs/targets/killed.json"))
        << R"([{"targets": ["127.0.0.1:1"], "labels": {"run": "killed", "sweep": "none"}}])";
  }

  std::string must(const std::vector<std::string>& arguments) {
    const Ended end = program(arguments);
    EXPECT_EQ(end.exit_code, 0) << end.output;
    return end.output;
  }

  std::unique_ptr<test::Process> endless(const std::string& run, int ranks,
                                         std::vector<std::string> more) {
    for (const char* word : {kEndless, "--set=metrics.listen=127.0.0.1:0", "--set=model.layers=2",
                             "--set=metrics.peak_tflops=1", "--set=checkpoint.every_steps=50",
                             "--set=eval.every_steps=50", "--set=parallel.threads=1"}) {
      more.emplace_back(word);
    }
    return train("runs/" + run, ranks, more);
  }
};

TEST_F(TrainDashboards, EveryExpressionHasAnAnswer) {
  if (!test::Prometheus::installed()) {
    GTEST_SKIP() << "prometheus (Debian's package of that name) is not installed";
  }
  lay_out();
  const test::Prometheus prometheus(path("monitoring/prometheus.yml"), path(""));
  const GpuRun gpu(path("runs/targets"));
  const auto dense = endless("dense", 2, {});
  const auto streams =
      endless("sizes/s-s1", 0, {"--set=model.type=cmollm", "--set=model.streams=2"});
  const auto kappa =
      endless("kappa", 0,
              {"--set=model.type=kappa_moe", "--set=model.moe_first=0", "--set=model.experts=3"});
  const auto choice = endless(
      "choice", 0,
      {"--set=model.type=moep_msit", "--set=model.windows=[5,3]", "--set=model.expert_width=24",
       "--set=model.expert_heads=2", "--set=model.pool_sequences=3", "--set=model.causal_ratio=0.5",
       "--set=data.path=" + path("masked").string()});
  ASSERT_TRUE(test::soon([&] { return prometheus.ready(); })) << prometheus.log();

  std::map<std::string, std::vector<std::string>> wrong;
  const auto all_answered = [&] {
    test::pause_for(1);
    wrong.clear();
    const Questions questions(prometheus);
    for (const auto& [name, dashboard] : dashboards()) {
      auto faults = questions.of(dashboard);
      if (!faults.empty()) wrong[name] = std::move(faults);
    }
    for (const json& group : prometheus.get("rules")["data"]["groups"]) {
      for (const json& rule : group["rules"]) {
        const std::string name = rule["name"], query = rule["query"];
        if (rule["health"] != "ok") wrong["rules"].push_back(name + " " + rule["health"].dump());
        for (const std::string& metric : questions.unknown(query)) {
          wrong["rules"].push_back(join(name, ": unknown metric ", metric));
        }
        if (rule["type"] == "recording" && prometheus.now(name).empty()) {
          wrong["rules"].push_back(name + " has no data");
        }
      }
    }
    return wrong.empty();
  };
  const auto start = std::chrono::steady_clock::now();
  while (!all_answered()) {
    for (const auto& job : {&dense, &streams, &kappa, &choice}) {
      ASSERT_FALSE((*job)->ended()) << (*job)->output();
    }
    ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(240))
        << testing::PrintToString(wrong);
  }
  const Questions questions(prometheus);
  EXPECT_GT(questions.alerts().size(), 20U);

  // The same questions find what is wrong with a panel.
  const auto planted = [&](const std::string& from, const std::string& to) {
    const std::string text = text_at(kMonitoring / "grafana/dashboards/run.json");
    EXPECT_THAT(text, HasSubstr(from));
    return questions.of(json::parse(text.substr(0, text.find(from)) + to +
                                    text.substr(text.find(from) + from.size())));
  };
  EXPECT_THAT(planted("(anabranch_loss{", "(anabranch_los{"),
              ElementsAre(HasSubstr("unknown metric anabranch_los")));
  EXPECT_THAT(planted("(anabranch_loss{", "(anabranch_loss{stat=\\\"mean\\\", "),
              ElementsAre(HasSubstr("no data")));
  EXPECT_THAT(planted("max without (instance, slurm_job) (", "max without (instance, slurm_job "),
              ElementsAre(HasSubstr("parse error")));
  EXPECT_THAT(planted("\"value\": 2}", "\"value\": 2.5}"), ElementsAre(HasSubstr("limit 2.5")));
  EXPECT_THAT(planted("run=~\\\"$run\\\"", "run=~\\\"$runs\\\""), testing::SizeIs(1));
  EXPECT_THAT(planted("AnabranchNoProgress", "AnabranchNoProgres"),
              ElementsAre(HasSubstr("no alert AnabranchNoProgres")));

  // Labels, and what is told of a run that goes before its time.
  const json info = prometheus.now(R"(anabranch_run_info{run="s-s1"})");
  ASSERT_EQ(info.size(), 1U);
  EXPECT_EQ(info[0]["metric"]["job"], "anabranch");
  EXPECT_EQ(info[0]["metric"]["slurm_job"], "none");
  EXPECT_EQ(info[0]["metric"]["sweep"], "sizes");
  EXPECT_FALSE(info[0]["metric"].contains("exported_run"));
  EXPECT_EQ(prometheus.now(R"(anabranch_sweep_runs{run="s-s1"} == 2)").size(), 1U);
  EXPECT_EQ(prometheus.now(R"(ALERTS{alertname="AnabranchDown", run="killed"})").size(), 1U);
  std::ofstream(path("runs/choice/stop")) << "";
  EXPECT_EQ(finish(*choice).exit_code, 130) << choice->output();
  EXPECT_TRUE(test::soon([&] {
    return !prometheus.now(R"(ALERTS{alertname="AnabranchEndedEarly", run="choice"})").empty();
  }));
}

// Panels do not overlap and say what they show.
TEST(Dashboards, AreLaidOut) {
  std::set<std::string> uids;
  for (const auto& [name, dashboard] : dashboards()) {
    EXPECT_TRUE(uids.insert(dashboard["uid"]).second) << name;
    std::set<int> ids;
    std::set<std::pair<int, int>> taken;
    for (const json& panel : dashboard["panels"]) {
      const std::string where = join(name, ": ", panel["title"].get<std::string>());
      EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << where;
      const json& at = panel["gridPos"];
      const int right = at["x"].get<int>() + at["w"].get<int>();
      EXPECT_LE(right, 24) << where;
      for (int x = at["x"]; x < right; ++x) {
        for (int y = at["y"]; y < at["y"].get<int>() + at["h"].get<int>(); ++y) {
          EXPECT_TRUE(taken.emplace(x, y).second) << where << " lies over another";
        }
      }
      if (panel["type"] == "row") continue;
      EXPECT_NE(panel["description"], "") << where;
      EXPECT_EQ(panel["datasource"]["uid"], "${datasource}") << where;
      EXPECT_NE(panel["fieldConfig"]["defaults"]["unit"], "") << where;
    }
  }
  EXPECT_EQ(uids.size(), 4U);
}

}  // namespace
}  // namespace anabranch
