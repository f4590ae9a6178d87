#include "runtime/sweep/list_schedule.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/base/error.h"

namespace anabranch {

namespace {

// When each rank of each node is free, rising within a node.
class Nodes {
 public:
  explicit Nodes(const Cluster& cluster)
      : free_(static_cast<size_t>(cluster.nodes),
              std::vector<double>(static_cast<size_t>(cluster.ranks_per_host), 0)) {}

  // A part of one node.
  RunSlot place_within(size_t ranks, double hours) {
    const auto start_on = [ranks](const std::vector<double>& node) { return node[ranks - 1]; };
    const auto best = std::ranges::min_element(free_, {}, start_on);
    const double start = start_on(*best);
    // The ranks that were free last, for the earlier ones may take a run that fits before.
    const auto end = std::ranges::upper_bound(*best, start);
    std::fill(end - static_cast<std::ptrdiff_t>(ranks), end, start + hours);
    std::ranges::sort(*best);
    return {0, {static_cast<int>(best - free_.begin())}, start, start + hours};
  }

  // Whole nodes.
  RunSlot place_over(size_t nodes, double hours) {
    std::vector<int> order(free_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto free_at = [this](int node) { return free_[static_cast<size_t>(node)].back(); };
    std::ranges::stable_sort(order, {}, free_at);
    order.resize(nodes);
    const double start = free_at(order.back());
    for (const int node : order) {
      std::ranges::fill(free_[static_cast<size_t>(node)], start + hours);
    }
    std::ranges::sort(order);
    return {0, order, start, start + hours};
  }

 private:
  std::vector<std::vector<double>> free_;
};

}  // namespace

std::vector<RunSlot> list_schedule(const std::vector<RunLoad>& runs, const Cluster& cluster) {
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&runs](size_t a, size_t b) {
    return std::tie(runs[a].hours, runs[a].ranks) > std::tie(runs[b].hours, runs[b].ranks);
  });
  Nodes nodes(cluster);
  const int host = cluster.ranks_per_host;
  std::vector<RunSlot> slots;
  for (const size_t r : order) {
    const RunLoad& run = runs[r];
    AB_CHECK(run.ranks <= host || run.ranks % host == 0, run.ranks, " ranks on hosts of ", host);
    AB_CHECK(run.ranks <= cluster.ranks(), run.ranks, " ranks of ", cluster.ranks());
    slots.push_back(run.ranks <= host
                        ? nodes.place_within(static_cast<size_t>(run.ranks), run.hours)
                        : nodes.place_over(static_cast<size_t>(run.ranks / host), run.hours));
    slots.back().run = r;
  }
  std::ranges::stable_sort(slots, {}, &RunSlot::start);
  return slots;
}

double finish_of(const std::vector<RunSlot>& slots) {
  double finish = 0;
  for (const RunSlot& slot : slots) finish = std::max(finish, slot.end);
  return finish;
}

}  // namespace anabranch
