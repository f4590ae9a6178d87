#include "runtime/evaluation/core_suite.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "runtime/evaluation/core_prompts.h"
#include "runtime/evaluation/python_random.h"

namespace anabranch {

namespace {

constexpr uint64_t kOrderSeed = 1337;

// The order in which questions are asked: places in the file.
std::vector<uint32_t> asking_order(size_t questions, int64_t most) {
  std::vector<uint32_t> order(questions);
  std::iota(order.begin(), order.end(), 0U);
  PythonRandom(kOrderSeed).shuffle(order);
  if (most > 0 && most < std::ssize(order)) order.resize(static_cast<size_t>(most));
  return order;
}

// The prompts of the question asked i-th, as tokens.
ScoreItem item_of(const CoreTask& task, const std::vector<CoreQuestion>& questions,
                  const std::vector<uint32_t>& order, size_t i, const Tokenizer& tokenizer,
                  int64_t longest) {
  std::vector<const CoreQuestion*> shots;
  for (const uint32_t shot :
       core_shots(static_cast<uint32_t>(i), static_cast<uint32_t>(order.size()),
                  static_cast<uint32_t>(task.shots))) {
    shots.push_back(&questions[order[shot]]);
  }
  return core_item(task, core_prompts(task, questions[order[i]], shots), tokenizer, longest);
}

// What the ranks tell each other of the questions: of each its choice and scores, and counts.
class Exchange {
 public:
  Exchange(size_t questions, size_t choices)
      : width_(1 + static_cast<int64_t>(choices)),
        sums_({static_cast<int64_t>(questions) * width_ + kCounts}, DType::kF64) {
    sums_.fill_zero();
  }

  void put(size_t i, size_t chosen, const std::vector<double>& scores) {
    double* const row = sums_.data<double>() + static_cast<int64_t>(i) * width_;
    row[0] = static_cast<double>(chosen);
    std::ranges::copy(scores, row + 1);
  }

  void put(const ScorerCounts& counts) {
    double* const to = sums_.data<double>() + sums_.count() - kCounts;
    to[0] = static_cast<double>(counts.tokens);
    to[1] = static_cast<double>(counts.computed);
    to[2] = static_cast<double>(counts.padding);
    to[3] = static_cast<double>(counts.truncated);
  }

  void meet(Group& world) { world.all_reduce_sum(sums_).wait(); }

  [[nodiscard]] size_t chosen(size_t i) const {
    return static_cast<size_t>(sums_.data<double>()[static_cast<int64_t>(i) * width_]);
  }

  [[nodiscard]] std::vector<double> scores(size_t i, size_t choices) const {
    const double* const row = sums_.data<double>() + static_cast<int64_t>(i) * width_ + 1;
    return {row, row + choices};
  }

  [[nodiscard]] ScorerCounts counts() const {
    const double* const from = sums_.data<double>() + sums_.count() - kCounts;
    const auto whole = [&](int at) { return static_cast<int64_t>(from[at]); };
    return {whole(0), whole(1), whole(2), whole(3)};
  }

 private:
  static constexpr int64_t kCounts = 4;

  int64_t width_;
  Tensor sums_;
};

// Prompts of a question that are scored.
size_t choices_of(const CoreQuestion& question) {
  return std::max(question.contexts.size(), question.continuations.size());
}

}  // namespace

double centred_accuracy(double accuracy, double baseline) {
  return (accuracy - 0.01 * baseline) / (1 - 0.01 * baseline);
}

CoreTaskResult run_core_task(const CoreTask& task, Model& model, const Tokenizer& tokenizer,
                             Group& world, const CoreOptions& options,
                             const std::function<void(size_t done, size_t all)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<CoreQuestion> questions = read_core_questions(task);
  const std::vector<uint32_t> order = asking_order(questions.size(), options.max_per_task);
  if (task.shots >= std::ssize(order)) {
    throw usage_error(task.label, " shows ", task.shots, " other questions with each, and ",
                      order.size(), " are asked: ask more of a task (--max-per-task)");
  }
  std::vector<size_t> mine;
  std::vector<ScoreItem> items;
  for (auto i = static_cast<size_t>(world.rank()); i < order.size();
       i += static_cast<size_t>(world.size())) {
    mine.push_back(i);
    items.push_back(item_of(task, questions, order, i, tokenizer, model.context()));
  }
  ScorerOptions scoring = options.scorer;
  scoring.greedy = task.type == CoreTaskType::kLanguageModeling;
  Scorer scorer(model, scoring);
  const auto scores = scorer.score(items, [&](size_t done) {
    if (progress) progress(done, items.size());
  });

  size_t most = 0;
  for (const CoreQuestion& question : questions) most = std::max(most, choices_of(question));
  Exchange exchange(order.size(), most);
  for (size_t m = 0; m < mine.size(); ++m) {
    std::vector<double> means;
    for (const TextScore& score : scores[m]) means.push_back(score.mean());
    exchange.put(mine[m], core_choice(task, scores[m]), means);
  }
  exchange.put(scorer.counts());
  exchange.meet(world);

  CoreTaskResult result{.task = task, .counts = exchange.counts(), .answers = {}};
  size_t right = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const CoreQuestion& question = questions[order[i]];
    result.answers.push_back({.place = order[i],
                              .gold = question.gold,
                              .chosen = exchange.chosen(i),
                              .scores = exchange.scores(i, choices_of(question))});
    right += result.answers.back().right() ? 1 : 0;
  }
  result.accuracy = static_cast<double>(right) / static_cast<double>(order.size());
  result.centred = centred_accuracy(result.accuracy, task.baseline);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

double core_metric(const std::vector<CoreTaskResult>& results, const std::string& without) {
  double sum = 0;
  int64_t tasks = 0;
  for (const CoreTaskResult& result : results) {
    if (result.task.label == without) continue;
    sum += result.centred;
    ++tasks;
  }
  return tasks > 0 ? sum / static_cast<double>(tasks) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace anabranch
