#include "runtime/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "core/base/log.h"
#include "monitoring/process.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/control.h"
#include "runtime/evaluator.h"
#include "runtime/profile_window.h"
#include "runtime/rank_health.h"
#include "runtime/resume.h"
#include "runtime/run_data.h"
#include "runtime/train_step.h"

namespace anabranch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string label_of(int64_t words) { return join("words-", words); }

// How often a rank that only waits for a save looks again.
constexpr auto kSavePoll = std::chrono::milliseconds(5);

// How often rank 0 looks for `stop` and `save` files: the disk may be a slow shared one.
constexpr auto kTriggerPoll = std::chrono::milliseconds(250);

class Trainer {
 public:
  Trainer(const TrainJob& job, Watchdog& watchdog);

  int run();

 private:
  void load();
  void take_step();
  void apply(double loss, double norm, StepReport& report);
  // Matrices that a matrix optimizer left as they were: `all` so far, on the rank with most.
  void tell_rejected(int64_t all);
  void finish_report(StepReport& report, Clock::time_point begin, double data_seconds,
                     double comm_seconds);
  void evaluate_all();
  void evaluate(size_t source, Routing routing);
  // The marks of checkpoint.words that the last step passed, as names of its checkpoint.
  [[nodiscard]] std::vector<std::string> word_labels() const;
  void tell_missed_marks();
  void start_save();
  // Moves a save on by what all ranks have told.
  void tend_save(const Control& control);
  // Waits for the save under way, all ranks together.
  void drain_save();
  // A verified checkpoint of this very step, or an Error.
  void save_now();
  // What this rank wants at the next boundary.
  StopKind wish();

  // Whether the step that makes `done` steps is logged.
  [[nodiscard]] bool logs(int64_t done) const {
    return done % config_.train.log_every == 0 || done == plan_.steps || done == 1;
  }

  [[nodiscard]] bool stopping() const { return stop_ >= StopKind::kRequeue; }

  int stop_with_save();

  void tell(const std::string& kind, const std::string& text) {
    for (ReportSink* sink : job_.sinks) sink->event(kind, text);
  }

  void beat(const char* phase, Heartbeat::Pace pace = Heartbeat::Pace::kStep) {
    job_.context.heartbeat->at(phase, pace);
  }

  const TrainJob& job_;
  const Config& config_;
  BatchPlan plan_;
  RunData data_;
  TrainStep step_;
  TrainingState& state_;
  RankHealth health_;
  CheckpointDirectory checkpoints_;
  CheckpointSaver saver_;
  bool saving_ = false;
  int64_t saved_step_ = -1;
  std::optional<SaveReport> last_save_;
  StopKind stop_ = StopKind::kNone;
  Clock::time_point looked_{};  // when rank 0 last looked for trigger files
  ProfileWindow profile_;
  int64_t rejected_ = 0;
};

Trainer::Trainer(const TrainJob& job, Watchdog& watchdog)
    : job_(job),
      config_(job.config),
      plan_(plan_batch(config_, job.world.size())),
      data_(config_, plan_, job.world, job.context),
      step_(config_, plan_, data_.vocabulary(), job.world, job.context),
      state_(step_.state()),
      health_(job.world, job.context, config_, watchdog,
              [this](const std::string& kind, const std::string& text) { tell(kind, text); }),
      checkpoints_(job.directory.checkpoints()),
      saver_(checkpoints_, job.world.rank(), job.world.size(),
             {config_.checkpoint.keep_last, config_.checkpoint.keep_every}, job.context.trace),
      profile_(job.context, job.profile) {
  AB_CHECK(plan_.steps > 0, "train() before train.epochs was turned into steps");
}

void Trainer::load() {
  beat("load", Heartbeat::Pace::kLong);
  const auto manifest = find_checkpoint(
      {checkpoints_, job_.directory.path().string(), job_.resume, config_, job_.facts}, job_.world,
      state_.items(), [this](const std::string& line) { tell("resume", line); });
  if (!manifest) return;
  data_.check_same(*manifest);
  step_.restore(*manifest);
  saved_step_ = state_.step;
  if (job_.world.rank() == 0) tell_missed_marks();
  tell("resume",
       join("resumed at step ", state_.step, " from ", checkpoints_.at(state_.step).string()));
  if (state_.step >= plan_.steps) {
    tell("resume", join("the run has done ", plan_.steps,
                        " steps; raise train.steps, tokens or epochs to "
                        "go on"));
  }
}

void Trainer::take_step() {
  const auto begin = Clock::now();
  const double data_before = data_.wait_seconds();
  const double blocked_before = job_.world.stats().blocked;
  job_.context.heartbeat->set_step(state_.step + 1);
  profile_.begin(state_.step + 1);
  step_.measures().detailed = logs(state_.step + 1);
  const double mine =
      step_.accumulate([this] { return data_.next(); }, [this] { profile_.sample_memory(); });
  step_.reduce();
  const Control control = exchange(job_.world, mine, wish(), saver_.phase());

  StepReport report;
  apply(control.loss, step_.grad_norm(), report);
  ++state_.step;
  state_.next_sample += plan_.sequences;
  state_.tokens += config_.train.batch_tokens;
  finish_report(report, begin, data_.wait_seconds() - data_before,
                job_.world.stats().blocked - blocked_before);
  for (ReportSink* sink : job_.sinks) sink->step(report);

  tend_save(control);
  stop_ = control.stop;
  const int64_t in_a_row = state_.guard().nonfinite_in_a_row();
  if (in_a_row >= config_.train.nonfinite_limit) {
    drain_save();
    throw Error(Fault::kInternal, join("the loss or gradient was not finite for ", in_a_row,
                                       " steps in a row, up to ", "step ", state_.step,
                                       "; the newest checkpoint is as it was. Look at the data ",
                                       "of these steps, or lower optim.lr."));
  }
}

void Trainer::apply(double loss, double norm, StepReport& report) {
  report.loss = loss;
  report.grad_norm = norm;
  report.learning_rate = state_.optimizer().lr(state_.step);
  switch (state_.guard().judge(loss, norm)) {
    case StepGuard::Verdict::kApply:
      step_.update(norm);
      break;
    case StepGuard::Verdict::kNonFinite:
      report.skipped = "nonfinite";
      break;
    case StepGuard::Verdict::kOutlier:
      report.skipped = "outlier";
      break;
  }
  report.skipped_steps = state_.guard().skipped();
}

void Trainer::tell_rejected(int64_t all) {
  if (all == rejected_) return;
  tell("optimizer", join("step ", state_.step, ": the update of ", all - rejected_,
                         " matrices was not finite, and they stay as they were"));
  rejected_ = all;
}

void Trainer::finish_report(StepReport& report, Clock::time_point begin, double data_seconds,
                            double comm_seconds) {
  const double compute_seconds = seconds_since(begin) - data_seconds - comm_seconds;
  const auto spreads = spread(job_.world, {compute_seconds, comm_seconds, data_seconds,
                                           static_cast<double>(resident_bytes()),
                                           static_cast<double>(state_.optimizer().rejected())});
  tell_rejected(std::llround(spreads[4].max));
  report.compute_seconds = spreads[0];
  report.comm_seconds = spreads[1];
  report.data_seconds = spreads[2];
  report.resident_bytes = spreads[3];
  report.step = state_.step;
  report.total_steps = plan_.steps;
  report.logged = logs(state_.step);
  if (report.logged) {
    step_.settle();
    report.readings = step_.model().readings(step_.measures());
  }
  report.tokens = state_.tokens;
  report.seconds = seconds_since(begin);
  report.tokens_per_second = static_cast<double>(config_.train.batch_tokens) / report.seconds;
  report.flops_per_second = report.tokens_per_second * step_.model().cost().flops_per_token();
  if (config_.metrics.peak_tflops > 0) {
    report.mfu = report.flops_per_second / (config_.metrics.peak_tflops * 1e12 * job_.world.size());
  }
  report.hidden = step_.hidden();
  report.comm = job_.world.stats();
  health_.step_done(report, compute_seconds);
}

void Trainer::evaluate_all() {
  step_.settle();
  for (size_t source = 0; source < data_.sources() && !stopping(); ++source) {
    if (step_.model().has_causal_mode()) evaluate(source, Routing::kCausal);
    if (step_.model().looks_ahead() && !stopping()) evaluate(source, Routing::kAsTrained);
  }
}

void Trainer::evaluate(size_t source, Routing routing) {
  const auto batches = data_.validation(source);
  if (!batches) return;  // a source without a validation split
  const auto next = [&](MicroBatch& batch) {
    beat("evaluate");
    const Control control = exchange(job_.world, 0, wish(), saver_.phase());
    tend_save(control);
    stop_ = std::max(stop_, control.stop);
    return !stopping() && batches(batch);
  };
  EvalReport report =
      anabranch::evaluate(step_.model(), next, data_.token_bytes(), job_.world, routing);
  if (stopping()) return;  // half a split is no measurement
  report.step = state_.step;
  report.source = data_.source_name(source);
  for (ReportSink* sink : job_.sinks) sink->eval(report);
}

StopKind Trainer::wish() {
  StopKind kind = job_.stop.pending();
  const auto now = Clock::now();
  if (job_.world.rank() == 0 && now - looked_ > kTriggerPoll) {
    looked_ = now;
    kind = std::max(kind, job_.directory.take_trigger());
  }
  return kind;
}

std::vector<std::string> Trainer::word_labels() const {
  const std::vector<int64_t>& marks = config_.checkpoint.words;
  if (marks.empty() || state_.step == 0) return {};
  const int64_t now = *data_.words_before(state_.next_sample);
  const int64_t before = *data_.words_before(state_.next_sample - plan_.sequences);
  std::vector<std::string> labels;
  for (const int64_t mark : marks) {
    if (before < mark && mark <= now) labels.push_back(label_of(mark));
  }
  return labels;
}

void Trainer::tell_missed_marks() {
  for (const int64_t mark : config_.checkpoint.words) {
    if (*data_.words_before(state_.next_sample) < mark || checkpoints_.has_label(label_of(mark))) {
      continue;
    }
    tell("resume", join("checkpoint.words ", mark, " was passed before step ", state_.step,
                        " and was not asked for then: it has no checkpoint"));
  }
}

void Trainer::start_save() {
  drain_save();
  beat("copy for a save");
  auto facts = job_.facts;
  facts["data"] = data_.identity();
  Manifest header = state_.header(facts);
  if (const auto words = data_.words_before(state_.next_sample)) {
    header.counters["words"] = {static_cast<double>(*words)};
  }
  saver_.start(header, state_.items(), word_labels());
  saving_ = true;
  if (!config_.checkpoint.async) drain_save();
}

void Trainer::tend_save(const Control& c) {
  if (!saving_) return;
  const auto report = [&](bool ok) {
    const CheckpointSaver::Timing timing = saver_.timing();
    last_save_ = {saver_.step(),        ok,          saver_.error(), timing.stall_seconds,
                  timing.write_seconds, timing.bytes};
    saving_ = false;
    for (ReportSink* sink : job_.sinks) sink->save(*last_save_);
  };
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

void Trainer::drain_save() {
  if (saving_) beat("save", Heartbeat::Pace::kLong);
  while (saving_) {
    tend_save(exchange(job_.world, 0, StopKind::kNone, saver_.phase()));
    if (saving_) std::this_thread::sleep_for(kSavePoll);
  }
}

void Trainer::save_now() {
  drain_save();
  if (saved_step_ == state_.step) return;
  start_save();
  drain_save();
  if (!last_save_->ok) {
    throw io_error("the checkpoint of step ", state_.step, " could not be written: ",
                   last_save_->error.empty() ? "another rank failed" : last_save_->error,
                   saved_step_ < 0 ? std::string(". There is no good one.")
                                   : join(". The newest good one is of step ", saved_step_, "."));
  }
}

int Trainer::stop_with_save() {
  save_now();
  tell("stop", join("stopped on request at step ", state_.step));
  return static_cast<int>(stop_ == StopKind::kRequeue ? Fault::kSaved : Fault::kInterrupted);
}

int Trainer::run() {
  load();
  // A run that is over stays as it was described when it was made.
  if (job_.on_start && state_.step < plan_.steps) job_.on_start();
  data_.start(state_.next_sample);
  saver_.prepare(state_.items());
  health_.check_weights(step_, state_.step, true);
  while (state_.step < plan_.steps) {
    take_step();
    const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0; };
    health_.check_weights(step_, state_.step);
    if (stopping()) return stop_with_save();
    if (due(config_.checkpoint.every_steps) || stop_ == StopKind::kSave || !word_labels().empty()) {
      start_save();
    }
    if (due(config_.eval.every_steps) && state_.step < plan_.steps) evaluate_all();
    if (stopping()) return stop_with_save();
  }
  if (profile_.missed()) {
    tell("profile", join("no step from ", job_.profile.first, " to ", job_.profile.second,
                         " was run, so the trace is empty"));
  }
  save_now();  // before the last validation: whatever happens there, the weights are safe
  evaluate_all();
  return 0;
}

}  // namespace

int train(const TrainJob& job) {
  const std::string build = job.facts.contains("build") ? job.facts.at("build") : "";
  constexpr double kLong = 10;  // times as long as a collective, as the start is given
  Watchdog watchdog(
      job.world, job.context, job.directory,
      {.seconds = static_cast<double>(job.config.parallel.watchdog_seconds),
       .long_seconds = kLong * static_cast<double>(job.config.parallel.deadline_seconds),
       .version = build.substr(0, build.find('\n')),
       .give_up = job.give_up});
  std::optional<Trainer> trainer;
  try {
    trainer.emplace(job, watchdog);
    const int code = trainer->run();
    job.world.barrier();  // every rank has finished its writing before any exits
    return code;
  } catch (const Error& error) {
    // Before the trainer unwinds, which may hang where its threads do.
    if (error.fault() == Fault::kPeer) watchdog.lost(error.what());
    throw;
  }
}

}  // namespace anabranch
