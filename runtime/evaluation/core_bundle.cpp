#include "runtime/evaluation/core_bundle.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "data/text/byte_stream.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"
#include "runtime/config/section_reader.h"
#include "runtime/evaluation/csv.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kLongestLine = int64_t{16} << 20U;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!fs::is_regular_file(path) || !in) {
    throw data_error(path.string(), ": no such file; expected the folder of an evaluation bundle, ",
                     "with core.yaml, eval_meta_data.csv and eval_data/");
  }
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

double percent(const std::string& where, const std::string& text) {
  double value = 0;
  if (parse_number(text, value) && value >= 0 && value < 100) return value;
  throw data_error(where, ": the random baseline is ", quote(text),
                   "; expected a percentage from 0 to below 100");
}

// What guessing gives, in percent, by task.
std::map<std::string, double> read_baselines(const std::string& path) {
  const auto records = parse_csv(text_of(path), path);
  const auto column = [&](const std::string& name) {
    const std::vector<std::string> none, &head = records.empty() ? none : records.front();
    const auto at = std::ranges::find(head, name);
    if (at == head.end()) throw data_error(path, ":1: no column ", quote(name));
    return static_cast<size_t>(at - head.begin());
  };
  const size_t task = column("Eval Task"), baseline = column("Random baseline");
  std::map<std::string, double> all;
  for (size_t r = 1; r < records.size(); ++r) {
    const auto& record = records[r];
    if (record.size() <= std::max(task, baseline)) {
      throw data_error(path, ": record ", r + 1, " has ", counted(std::ssize(record), "field"),
                       "; expected ", records.front().size());
    }
    all[record[task]] = percent(join(path, ": ", record[task]), record[baseline]);
  }
  return all;
}

const YamlNode& entry(const YamlNode& task, const std::string& key) {
  const YamlNode* node = task.find(key);
  if (node == nullptr) throw data_error(task.where, ": the task has no ", key);
  return *node;
}

const std::string& word(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar) return node.value;
  throw data_error(node.where, ": ", node.key, " is no single value");
}

CoreTaskType type_of(const YamlNode& node) {
  const auto words = words_of(CoreTaskType{});
  const auto at = std::ranges::find(words, word(node));
  if (at != words.end()) return static_cast<CoreTaskType>(at - words.begin());
  throw data_error(node.where, ": icl_task_type is ", quote(node.value),
                   nearest_or_known(node.value, {words.begin(), words.end()}, "", "it is one of "));
}

// The first of num_fewshot's list, or the number itself.
int64_t shots_of(const YamlNode& node) {
  const bool list = node.kind == YamlNode::Kind::kList && !node.items.empty();
  const std::string& text = word(list ? node.items.front() : node);
  int64_t shots = 0;
  if (parse_number(text, shots) && shots >= 0 && shots <= 1000) return shots;
  throw data_error(node.where, ": num_fewshot is ", quote(text), "; expected 0 to 1000");
}

CoreTask task_of(const YamlNode& node, const std::string& bundle,
                 const std::map<std::string, double>& baselines) {
  if (node.kind != YamlNode::Kind::kMap) throw data_error(node.where, ": expected a task");
  CoreTask task;
  task.label = word(entry(node, "label"));
  const fs::path uri = word(entry(node, "dataset_uri"));
  if (uri.is_absolute() || std::ranges::find(uri, fs::path("..")) != uri.end()) {
    throw data_error(node.where, ": dataset_uri ", quote(uri.string()), " leaves the bundle");
  }
  task.path = (fs::path(bundle) / "eval_data" / uri).string();
  task.type = type_of(entry(node, "icl_task_type"));
  task.shots = shots_of(entry(node, "num_fewshot"));
  if (const YamlNode* delimiter = node.find("continuation_delimiter")) {
    task.delimiter = word(*delimiter);
  }
  const auto baseline = baselines.find(task.label);
  if (baseline == baselines.end()) {
    throw data_error(node.where, ": eval_meta_data.csv has no baseline of ", quote(task.label));
  }
  task.baseline = baseline->second;
  return task;
}

YamlNode read_yaml(const std::string& path) {
  try {
    return parse_yaml(text_of(path), path);
  } catch (const Error& error) {  // of a configuration it would be another fault
    throw data_error(error.what());
  }
}

// Fields of one line.
class Question {
 public:
  Question(const std::string& line, std::string where) : where_(std::move(where)) {
    json_ = Json::parse(line, nullptr, false);
    if (!json_.is_object()) fail("no JSON object in UTF-8");
  }

  [[nodiscard]] std::string text(const char* key) const {
    const auto at = json_.find(key);
    if (at == json_.end() || !at->is_string()) fail(join("no text ", quote(key)));
    return at->get<std::string>();
  }

  // Two or more.
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    const auto at = json_.find(key);
    const bool list = at != json_.end() && at->is_array() && at->size() >= 2;
    if (!list || !std::ranges::all_of(*at, [](const Json& each) { return each.is_string(); })) {
      fail(join("no list of two texts or more ", quote(key)));
    }
    return at->get<std::vector<std::string>>();
  }

  [[nodiscard]] size_t gold(size_t choices) const {
    const auto at = json_.find("gold");
    if (at == json_.end() || !at->is_number_integer()) fail("no whole number \"gold\"");
    const auto value = at->get<int64_t>();
    if (value < 0 || value >= static_cast<int64_t>(choices)) {
      fail(join("\"gold\" is ", value, " of ", choices, " choices"));
    }
    return static_cast<size_t>(value);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw data_error(where_, ": ", what, "; see the bundle's layout");
  }

  std::string where_;
  Json json_;
};

CoreQuestion question_of(const Question& line, CoreTaskType type) {
  CoreQuestion question;
  switch (type) {
    case CoreTaskType::kMultipleChoice:
      question.contexts = {line.text("query")};
      question.continuations = line.texts("choices");
      question.gold = line.gold(question.continuations.size());
      break;
    case CoreTaskType::kSchema:
      question.contexts = line.texts("context_options");
      question.continuations = {line.text("continuation")};
      question.gold = line.gold(question.contexts.size());
      break;
    case CoreTaskType::kLanguageModeling:
      question.contexts = {line.text("context")};
      question.continuations = {line.text("continuation")};
      break;
  }
  return question;
}

}  // namespace

std::vector<CoreTask> read_core_tasks(const std::string& bundle,
                                      const std::vector<std::string>& labels) {
  const std::string path = bundle + "/core.yaml";
  const YamlNode root = read_yaml(path);
  const YamlNode* list = root.find("icl_tasks");
  if (list == nullptr || list->kind != YamlNode::Kind::kList || list->items.empty()) {
    throw data_error(path, ": no list icl_tasks");
  }
  const auto baselines = read_baselines(bundle + "/eval_meta_data.csv");
  std::vector<CoreTask> tasks;
  std::vector<std::string> known;
  for (const YamlNode& node : list->items) {
    CoreTask task = task_of(node, bundle, baselines);
    known.push_back(task.label);
    const bool wanted = labels.empty() || std::ranges::find(labels, task.label) != labels.end();
    if (wanted) tasks.push_back(std::move(task));
  }
  for (const std::string& label : labels) {
    if (std::ranges::find(known, label) != known.end()) continue;
    throw data_error(path, ": no task ", quote(label), nearest_or_known(label, known, "", ""));
  }
  return tasks;
}

std::vector<CoreQuestion> read_core_questions(const CoreTask& task) {
  LineReader lines(task.path, kLongestLine);
  std::vector<CoreQuestion> questions;
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    questions.push_back(
        question_of(Question(line, join(task.path, ":", lines.number())), task.type));
  }
  if (questions.empty()) throw data_error(task.path, ": no question in it");
  if (task.shots >= std::ssize(questions)) {
    throw data_error(task.path, ": ", counted(std::ssize(questions), "question"), "; ", task.label,
                     " shows ", task.shots, " others with each");
  }
  return questions;
}

}  // namespace anabranch
