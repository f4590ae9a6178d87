#include "runtime/run_saver.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "core/base/log.h"

namespace anabranch {
namespace {

// How often a rank that only waits for a save looks again.
constexpr auto kSavePoll = std::chrono::milliseconds(5);

std::string label_of(int64_t words) { return join("words-", words); }

}  // namespace

RunSaver::RunSaver(const TrainJob& job, const BatchPlan& plan, const RunData& data,
                   TrainingState& state)
    : job_(job),
      config_(job.config.checkpoint),
      plan_(plan),
      data_(data),
      state_(state),
      checkpoints_(job.directory.checkpoints()),
      saver_(checkpoints_, job.world.rank(), job.world.size(),
             {config_.keep_last, config_.keep_every}, job.context.trace) {}

void RunSaver::resumed() {
  saved_step_ = state_.step;
  if (job_.world.rank() != 0) return;
  for (const int64_t mark : config_.words) {
    if (*data_.words_before(state_.next_sample) < mark || checkpoints_.has_label(label_of(mark))) {
      continue;
    }
    const std::string text = join("checkpoint.words ", mark, " was passed before step ",
                                  state_.step, " and was not asked for then: it has no checkpoint");
    for (ReportSink* sink : job_.sinks) sink->event("resume", text);
  }
}

std::vector<std::string> RunSaver::word_labels() const {
  const std::vector<int64_t>& marks = config_.words;
  if (marks.empty() || state_.step == 0) return {};
  const int64_t now = *data_.words_before(state_.next_sample);
  const int64_t before = *data_.words_before(state_.next_sample - plan_.sequences);
  std::vector<std::string> labels;
  for (const int64_t mark : marks) {
    if (before < mark && mark <= now) labels.push_back(label_of(mark));
  }
  return labels;
}

bool RunSaver::due() const {
  const int64_t every = config_.every_steps;
  return (every > 0 && state_.step % every == 0) || !word_labels().empty();
}

void RunSaver::start() {
  drain();
  job_.context.heartbeat->at("copy for a save");
  auto facts = job_.facts;
  facts["data"] = data_.identity();
  Manifest header = state_.header(facts);
  if (const auto words = data_.words_before(state_.next_sample)) {
    header.counters["words"] = {static_cast<double>(*words)};
  }
  saver_.start(header, state_.items(), word_labels());
  saving_ = true;
  if (!config_.async) drain();
}

void RunSaver::report(bool ok) {
  const CheckpointSaver::Timing timing = saver_.timing();
  last_save_ = {saver_.step(),        ok,          saver_.error(), timing.stall_seconds,
                timing.write_seconds, timing.bytes};
  saving_ = false;
  for (ReportSink* sink : job_.sinks) sink->save(*last_save_);
}

void RunSaver::tend(const Control& c) {
  if (!saving_) return;
  if (c.failed > 0 && c.writing == 0 && c.publishing == 0) {
    if (saver_.phase() == CheckpointSaver::Phase::kFailed && job_.context.log != nullptr) {
      job_.context.log->error(join("saving step ", saver_.step(), " failed: ", saver_.error()));
    }
    report(false);
    saver_.abandon();
    job_.world.barrier();  // no rank may write a next attempt while this one is being removed
  } else if (c.written == job_.world.size()) {
    saver_.publish();
  } else if (!c.save_busy()) {
    saved_step_ = saver_.step();
    report(true);
  }
}

void RunSaver::drain() {
  if (saving_) job_.context.heartbeat->at("save", Heartbeat::Pace::kLong);
  while (saving_) {
    tend(exchange(job_.world, 0, StopKind::kNone, saver_.phase()));
    if (saving_) std::this_thread::sleep_for(kSavePoll);
  }
}

void RunSaver::save_now() {
  drain();
  if (saved_step_ == state_.step) return;
  start();
  drain();
  if (!last_save_->ok) {
    throw io_error("the checkpoint of step ", state_.step, " could not be written: ",
                   last_save_->error.empty() ? "another rank failed" : last_save_->error,
                   saved_step_ < 0 ? std::string(". There is no good one.")
                                   : join(". The newest good one is of step ", saved_step_, "."));
  }
}

}  // namespace anabranch
