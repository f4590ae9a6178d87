#include "runtime/sweep/stop_early.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "runtime/sweep/run_loss.h"

namespace anabranch {

namespace {

std::string figure(const char* form, double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), form, value);
  return text.data();
}

// A point and how it is judged.
struct Standing {
  std::vector<size_t> runs;
  int64_t reached = 0;  // tokens, of its furthest run
  bool stopped = false;
  std::optional<StopVerdict> verdict;
};

class Judge {
 public:
  Judge(const EarlyStop& rule, const SweepRecord& record, const std::vector<RunSoFar>& runs)
      : rule_(rule), record_(record), runs_(runs), points_(record.points.size()) {
    AB_CHECK(runs.size() == record.runs.size(), "one state a run");
    for (size_t r = 0; r < runs.size(); ++r) {
      const size_t p = record.runs[r].point;
      reached_.push_back(reached_tokens(runs[r].series, rule.by, record.points[p].batch_tokens));
      points_[p].runs.push_back(r);
      points_[p].reached = std::max(points_[p].reached, reached_[r]);
      points_[p].stopped = points_[p].stopped || runs[r].stopped;
    }
  }

  std::vector<StopVerdict> verdicts() {
    std::map<std::vector<std::string>, std::vector<size_t>> groups;
    for (size_t p = 0; p < points_.size(); ++p) {
      std::vector<std::string> key;
      for (const std::string& name : rule_.per) key.push_back(record_.points[p].setting(name));
      groups[key].push_back(p);
    }
    for (const auto& [key, group] : groups) judge_group(group);
    std::vector<StopVerdict> all;
    for (size_t r = 0; r < runs_.size(); ++r) {
      const std::optional<StopVerdict>& bad = points_[record_.runs[r].point].verdict;
      if (!bad || runs_[r].over) continue;
      all.push_back(*bad);
      all.back().run = r;
    }
    return all;
  }

 private:
  void judge_group(const std::vector<size_t>& group) {
    const auto n = static_cast<double>(group.size());
    constexpr double kRounding = 1e-9;  // 0.1 * 30 is a little over 3
    const auto k = static_cast<size_t>(std::max(1.0, std::ceil(rule_.keep * n - kRounding)));
    if (k >= group.size()) return;
    size_t left = group.size() - k;  // that may end
    std::vector<size_t> bad;
    for (const size_t p : group) {
      Standing& point = points_[p];
      point.verdict = judge(p, group, k);
      if (point.stopped) {
        left -= left > 0 ? 1 : 0;
        if (!point.verdict) point.verdict = {.why = "another run of its point was ended"};
      } else if (point.verdict) {
        bad.push_back(p);
      }
    }
    std::ranges::stable_sort(bad, std::greater<>(), [this](size_t p) {
      return points_[p].verdict->loss - points_[p].verdict->better;
    });
    for (size_t i = left; i < bad.size(); ++i) points_[bad[i]].verdict.reset();
  }

  // At how many tokens a point and k others can be compared.
  [[nodiscard]] int64_t common_tokens(size_t point, const std::vector<size_t>& group,
                                      size_t k) const {
    std::vector<int64_t> others;
    for (const size_t p : group) {
      if (p != point) others.push_back(points_[p].reached);
    }
    std::ranges::sort(others, std::greater<>());
    return std::min(points_[point].reached, others[k - 1]);
  }

  // Infinite where it is not finite. None: no run has got there.
  [[nodiscard]] std::optional<double> loss(size_t point, int64_t tokens) const {
    double sum = 0;
    double count = 0;
    for (const size_t r : points_[point].runs) {
      if (reached_[r] < tokens) continue;
      const auto value =
          loss_at(runs_[r].series, rule_.by, record_.points[point].batch_tokens, tokens);
      if (!value) continue;
      if (!std::isfinite(*value)) return std::numeric_limits<double>::infinity();
      sum += *value;
      ++count;
    }
    if (count == 0) return {};
    return sum / count;
  }

  [[nodiscard]] int64_t after(size_t point) const {
    if (rule_.after_tokens > 0) return rule_.after_tokens;
    const auto tokens = static_cast<double>(record_.points[point].tokens());
    return std::max<int64_t>(1, std::llround(std::ceil(rule_.after_fraction * tokens)));
  }

  // None: it goes on.
  [[nodiscard]] std::optional<StopVerdict> judge(size_t point, const std::vector<size_t>& group,
                                                 size_t k) const {
    const int64_t tokens = common_tokens(point, group, k);
    if (tokens < after(point)) return {};
    const std::optional<double> mine = loss(point, tokens);
    if (!mine) return {};
    std::vector<double> known;
    for (const size_t p : group) {
      const std::optional<double> theirs = p == point ? std::nullopt : loss(p, tokens);
      if (theirs && std::isfinite(*theirs)) known.push_back(*theirs);
    }
    if (known.size() < k) return {};
    std::ranges::sort(known);
    const double better = known[k - 1];
    if (!(*mine > better + rule_.margin)) return {};
    return StopVerdict{
        0, tokens, *mine, better,
        join("at ", figure("%.3g", static_cast<double>(tokens)), " tokens the ", word_of(rule_.by),
             " of ", record_.points[point].id, " is ", figure("%.4f", *mine), ", and ", k, " of ",
             group.size(), " points have ", figure("%.4f", better), " or less, more than ",
             figure("%g", rule_.margin), " below")};
  }

  const EarlyStop& rule_;
  const SweepRecord& record_;
  const std::vector<RunSoFar>& runs_;
  std::vector<int64_t> reached_;  // tokens by run
  std::vector<Standing> points_;
};

}  // namespace

std::vector<StopVerdict> runs_to_stop(const EarlyStop& rule, const SweepRecord& record,
                                      const std::vector<RunSoFar>& runs) {
  return Judge(rule, record, runs).verdicts();
}

}  // namespace anabranch
