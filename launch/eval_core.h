// `eval --suite core`: the CORE metric of a trained model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/rank_process.h"
#include "runtime/loaded_model.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

struct CoreWish {
  std::string bundle;              // its folder
  std::vector<std::string> tasks;  // by label; empty: all
  int64_t max_per_task = 0;        // 0: all
  int64_t batch_tokens = 8192;
  bool share = true;
  std::string answers;  // a file for what was answered, question by question; empty: none
};

// Declares --bundle, --tasks, --max-per-task, --batch-tokens, --whole-prompts and --answers.
void add_core_options(CLI::App& verb, CoreWish& wish);

// Collective: answers the tasks and prints the table, or JSON. Throws Error (usage) without a
// bundle, and as read_core_tasks() and run_core_task() do.
void eval_core(const CoreWish& wish, LoadedModel& loaded, RankProcess& process, bool json);

}  // namespace anabranch
