// The CORE metric of a model: how much better than guessing it answers 22 tasks.
//
//   centred_t = (accuracy_t - b_t) / (1 - b_t),   b_t the accuracy of guessing
//   CORE      = mean of centred_t over the tasks
//
// Source: DCLM, arXiv 2406.11794, as nanochat computes it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "parallel/comm/group.h"
#include "runtime/evaluation/core_bundle.h"
#include "runtime/evaluation/scorer.h"

namespace anabranch {

struct CoreOptions {
  int64_t max_per_task = 0;  // questions of a task, after they are shuffled; 0: all
  ScorerOptions scorer;
};

// How one question was answered.
struct CoreAnswer {
  size_t place = 0;  // in the file, from 0
  size_t gold = 0, chosen = 0;
  std::vector<double> scores;  // mean nats a token of each choice; of language modelling the one

  [[nodiscard]] bool right() const { return chosen == gold; }
};

struct CoreTaskResult {
  CoreTask task;
  double accuracy = 0, centred = 0;
  double seconds = 0;
  ScorerCounts counts;              // of all ranks
  std::vector<CoreAnswer> answers;  // in the order asked
};

// How much of what guessing leaves is right. `baseline` is in percent.
double centred_accuracy(double accuracy, double baseline);

// Answers a task's questions; the ranks divide them among themselves, and all have the result.
//
//   progress  told how many of this rank's are done
//
// Throws Error as read_core_questions() and Scorer do.
CoreTaskResult run_core_task(const CoreTask& task, Model& model, const Tokenizer& tokenizer,
                             Group& world, const CoreOptions& options,
                             const std::function<void(size_t done, size_t all)>& progress = {});

// The mean of the centred accuracies; not-a-number of no task.
//
//   without  the label of a task that is left out; empty: none
double core_metric(const std::vector<CoreTaskResult>& results, const std::string& without = "");

}  // namespace anabranch
