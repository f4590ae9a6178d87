#include "launch/sweep_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launch/progress.h"
#include "launch/sweep_board.h"

namespace anabranch {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kPhases = {RunPhase::kRunning, RunPhase::kFailed,  RunPhase::kSaved,
                                RunPhase::kQueued,  RunPhase::kWaiting, RunPhase::kStopped,
                                RunPhase::kDone};

std::string number(double value, const char* format) {
  return std::isnan(value) ? "-" : fmt::format(fmt::runtime(format), value);
}

std::string step_text(const RunState& state) {
  return state.total_steps > 0 ? fmt::format("{}/{}", state.step, state.total_steps)
                               : fmt::format("{}", state.step);
}

std::string row(const std::string& id, size_t width, const RunState& state) {
  return fmt::format(
      "{:<{}}  {:<8}{:>15}{:>10}{:>10}{:>11}{:>10}{:>5}  {}\n", id, width, word_of(state.phase),
      step_text(state), number(state.loss, "{:.4f}"), number(state.validation_loss, "{:.4f}"),
      std::isnan(state.tokens_per_second) ? "-" : count_text(state.tokens_per_second),
      std::isnan(state.seconds_left) ? "-" : time_text(state.seconds_left), state.attempts,
      state.phase == RunPhase::kSaved || state.phase == RunPhase::kStopped ? state.why : "");
}

std::ptrdiff_t rank_of(RunPhase phase) {
  return std::ranges::find(kPhases, phase) - kPhases.begin();
}

}  // namespace

std::string sweep_totals(const SweepBoard& board) {
  std::string text;
  for (const RunPhase phase : kPhases) {
    const auto count = std::ranges::count(board.states(), phase, &RunState::phase);
    if (count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, word_of(phase));
  }
  return text;
}

std::string sweep_failures(const SweepBoard& board) {
  std::string text;
  for (size_t r = 0; r < board.states().size(); ++r) {
    const RunState& state = board.states()[r];
    const std::string& id = board.record().runs[r].id;
    if (state.phase == RunPhase::kFailed) {
      text += fmt::format("{} failed, exit code {}: {}\n", id, state.exit_code, state.why);
      if (!state.last_line.empty()) text += fmt::format("    {}\n", state.last_line);
    }
    if (!state.damage.empty()) text += fmt::format("{} is damaged: {}\n", id, state.damage);
  }
  return text;
}

std::string run_line(const SweepBoard& board, size_t run) {
  const RunState& state = board.states()[run];
  std::string text = fmt::format("{}: {}", board.record().runs[run].id, word_of(state.phase));
  if (state.phase == RunPhase::kFailed) text += fmt::format(", exit code {}", state.exit_code);
  if (state.step > 0) text += ", step " + step_text(state);
  if (!std::isnan(state.loss)) text += fmt::format(", loss {:.4f}", state.loss);
  if (!std::isnan(state.validation_loss)) {
    text += fmt::format(", validation loss {:.4f}", state.validation_loss);
  }
  const std::string& why = state.last_line.empty() ? state.why : state.last_line;
  return state.phase == RunPhase::kDone || why.empty() ? text : text + ": " + why;
}

std::string sweep_table(const SweepBoard& board, size_t rows) {
  const std::vector<SweepRun>& runs = board.record().runs;
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool some = rows > 0 && rows < order.size();
  if (some) {
    std::ranges::stable_sort(order, {}, [&](size_t r) { return rank_of(board.states()[r].phase); });
    order.resize(rows);
  }
  size_t width = 3;
  for (const size_t r : order) width = std::max(width, runs[r].id.size());
  std::string text = fmt::format("{:<{}}  {:<8}{:>15}{:>10}{:>10}{:>11}{:>10}{:>5}\n", "run", width,
                                 "state", "step", "loss", "val loss", "tokens/s", "left", "try");
  for (const size_t r : order) text += row(runs[r].id, width, board.states()[r]);
  if (some) text += fmt::format("and {} more\n", runs.size() - rows);
  text += fmt::format("{}: {} runs: {}\n", board.record().name, runs.size(), sweep_totals(board));
  if (!board.trouble().empty()) {
    text += "what was submitted to SLURM counts as queued: " + board.trouble() + "\n";
  }
  return text + sweep_failures(board);
}

std::string sweep_json(const SweepBoard& board) {
  const auto figure = [](double value) { return std::isnan(value) ? Json() : Json(value); };
  Json document = {{"sweep", board.record().name},
                   {"directory", board.directory().path().string()},
                   {"queue_trouble", board.trouble()},
                   {"totals", Json::object()},
                   {"runs", Json::array()}};
  for (const RunPhase phase : kPhases) {
    document["totals"][std::string(word_of(phase))] =
        std::ranges::count(board.states(), phase, &RunState::phase);
  }
  for (size_t r = 0; r < board.states().size(); ++r) {
    const RunState& state = board.states()[r];
    document["runs"].push_back({{"id", board.record().runs[r].id},
                                {"state", word_of(state.phase)},
                                {"in_queue", state.in_queue},
                                {"job", state.job},
                                {"step", state.step},
                                {"total_steps", state.total_steps},
                                {"loss", figure(state.loss)},
                                {"validation_loss", figure(state.validation_loss)},
                                {"tokens_per_second", figure(state.tokens_per_second)},
                                {"seconds_left", figure(state.seconds_left)},
                                {"attempts", state.attempts},
                                {"exit_code", state.exit_code},
                                {"why", state.why},
                                {"last_line", state.last_line},
                                {"damage", state.damage}});
  }
  return document.dump(2) + "\n";
}

}  // namespace anabranch
