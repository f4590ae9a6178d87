// The CORE suite's files: which tasks there are, and their questions.
//
//   BUNDLE/core.yaml            icl_tasks: label, dataset_uri, num_fewshot, icl_task_type,
//                               continuation_delimiter
//   BUNDLE/eval_meta_data.csv   "Eval Task" and "Random baseline" in percent, among other columns
//   BUNDLE/eval_data/**.jsonl   a question a line
//
// Source: the evaluation bundle of nanochat, after DCLM's list of 22 tasks (arXiv 2406.11794).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anabranch {

enum class CoreTaskType : uint8_t { kMultipleChoice, kSchema, kLanguageModeling };

constexpr auto words_of(CoreTaskType) {
  return std::array<std::string_view, 3>{"multiple_choice", "schema", "language_modeling"};
}

struct CoreTask {
  std::string label, path;  // the path of its questions
  CoreTaskType type = CoreTaskType::kMultipleChoice;
  int64_t shots = 0;
  std::string delimiter = " ";  // between a question and its answer
  double baseline = 0;          // of guessing, in percent
};

// A question of any type. Multiple choice: contexts has the query alone, and one of the
// continuations is right. Schema: one of the contexts is, and there is one continuation. Language
// modelling: one of each.
struct CoreQuestion {
  std::vector<std::string> contexts, continuations;
  size_t gold = 0;  // which is right
};

// The tasks of a bundle in its order. Throws Error (data) with file and line if something is
// missing, unknown or out of range.
//
//   labels  those that are wanted; empty: all
std::vector<CoreTask> read_core_tasks(const std::string& bundle,
                                      const std::vector<std::string>& labels = {});

// A task's questions. Throws Error (data) with file and line: no JSON or UTF-8, a field that is
// missing or of another kind, gold out of range, a line of more than 16 MiB, no question at all.
std::vector<CoreQuestion> read_core_questions(const CoreTask& task);

}  // namespace anabranch
