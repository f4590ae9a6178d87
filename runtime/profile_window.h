// The steps of a run of which a Chrome trace is kept.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/trace.h"
#include "parallel/rank_context.h"

namespace anabranch {

class ProfileWindow {
 public:
  // Keeps the reference.
  //
  //   steps  the first and the last, from 1; -1: none
  ProfileWindow(const RankContext& context, std::pair<int64_t, int64_t> steps)
      : context_(context), steps_(steps) {}

  // Step `step` begins.
  void begin(int64_t step) {
    if (context_.trace == nullptr || steps_.first < 0) return;
    context_.trace->set_on(step >= steps_.first && step <= steps_.second);
    traced_ = traced_ || context_.trace->on();
    sample_memory();
  }

  void sample_memory() const {
    if (context_.trace == nullptr || !context_.trace->on()) return;
    for (const auto& [tag, bytes] : context_.pool->live_by_tag()) {
      context_.trace->add_counter("memory: " + tag, static_cast<double>(bytes));
    }
  }

  // Whether steps were asked for and none was run.
  [[nodiscard]] bool missed() const { return steps_.first >= 0 && !traced_; }

 private:
  const RankContext& context_;
  std::pair<int64_t, int64_t> steps_;
  bool traced_ = false;
};

}  // namespace anabranch
