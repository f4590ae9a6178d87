#include "runtime/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/range.h"
#include "monitoring/process.h"
#include "runtime/control.h"
#include "runtime/evaluator.h"
#include "runtime/profile_window.h"
#include "runtime/rank_health.h"
#include "runtime/resume.h"
#include "runtime/run_data.h"
#include "runtime/run_saver.h"
#include "runtime/train_step.h"

namespace anabranch {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// How often rank 0 looks for `stop` and `save` files: the disk may be a slow shared one.
constexpr auto kTriggerPoll = std::chrono::milliseconds(250);

class Trainer {
 public:
  Trainer(const TrainJob& job, Watchdog& watchdog);

  int run();

 private:
  void load();
  void take_step();
  // How a step goes on all ranks, with the update before it: asked before its own update, behind
  // which values of parameters travel, for what ranks tell each other then waits for them.
  void compare_ranks(StepReport& report, double data_seconds, double comm_seconds);
  void apply(double loss, double norm, StepReport& report);
  // Matrices that a matrix optimizer left as they were: `all` so far, on the rank with most.
  void tell_rejected(int64_t all);
  // Of the update that no step comes after.
  void tell_last_rejected();
  void finish_report(StepReport& report);
  void evaluate_all();
  void evaluate(size_t source, Routing routing);
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
  RunSaver saver_;
  StopKind stop_ = StopKind::kNone;
  Clock::time_point looked_{};  // when rank 0 last looked for trigger files
  ProfileWindow profile_;
  int64_t rejected_ = 0;
  Clock::time_point step_begin_{};
  double compute_seconds_ = 0;  // of this rank's step, as compare_ranks has it
  double update_seconds_ = 0;   // of its last update
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
      saver_(job, plan_, data_, state_),
      profile_(job.context, job.profile) {
  AB_CHECK(plan_.steps > 0, "train() before train.epochs was turned into steps");
}

void Trainer::load() {
  beat("load", Heartbeat::Pace::kLong);
  const auto manifest = find_checkpoint(
      {saver_.checkpoints(), job_.directory.path().string(), job_.resume, config_, job_.facts},
      job_.world, state_.items(), [this](const std::string& line) { tell("resume", line); });
  if (!manifest) return;
  if (!manifest->weights_only()) data_.check_same(*manifest);
  step_.restore(*manifest);
  saver_.resumed();
  if (manifest->weights_only()) {
    tell("resume", join("starts from imported weights, with a fresh optimizer: ",
                        saver_.checkpoints().at(state_.step).string()));
    return;
  }
  tell("resume", join("resumed at step ", state_.step, " from ",
                      saver_.checkpoints().at(state_.step).string()));
  if (state_.step >= plan_.steps) {
    tell("resume", join("the run has done ", plan_.steps,
                        " steps; raise train.steps, tokens or epochs to "
                        "go on"));
  }
}

void Trainer::take_step() {
  const Range range("step", state_.step + 1);
  step_begin_ = Clock::now();
  const double data_before = data_.wait_seconds();
  const double blocked_before = job_.world.stats().blocked;
  job_.context.heartbeat->set_step(state_.step + 1);
  profile_.begin(state_.step + 1);
  step_.measures().detailed = logs(state_.step + 1);
  step_.accumulate([this] { return data_.next(); }, [this] { profile_.sample_memory(); });
  step_.reduce();
  const Control control = exchange(job_.world, step_.loss(), wish(), saver_.phase());

  const double norm = step_.grad_norm();

  StepReport report;
  compare_ranks(report, data_.wait_seconds() - data_before,
                job_.world.stats().blocked - blocked_before);
  apply(control.loss, norm, report);
  ++state_.step;
  state_.next_sample += plan_.sequences;
  state_.tokens += config_.train.batch_tokens;
  finish_report(report);
  for (ReportSink* sink : job_.sinks) sink->step(report);

  saver_.tend(control);
  stop_ = control.stop;
  const int64_t in_a_row = state_.guard().nonfinite_in_a_row();
  if (in_a_row >= config_.train.nonfinite_limit) {
    saver_.drain();
    throw Error(Fault::kInternal, join("the loss or gradient was not finite for ", in_a_row,
                                       " steps in a row, up to ", "step ", state_.step,
                                       "; the newest checkpoint is as it was. Look at the data ",
                                       "of these steps, or lower optim.lr."));
  }
}

void Trainer::apply(double loss, double norm, StepReport& report) {
  const auto begin = Clock::now();
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
  update_seconds_ = seconds_since(begin);
}

void Trainer::tell_rejected(int64_t all) {
  if (all == rejected_) return;
  tell("optimizer", join("step ", state_.step, ": the update of ", all - rejected_,
                         " matrices was not finite, and they stay as they were"));
  rejected_ = all;
}

void Trainer::tell_last_rejected() {
  state_.optimizer().count_rejected();
  const auto rejected = static_cast<double>(state_.optimizer().rejected());
  tell_rejected(std::llround(spread(job_.world, {rejected}).front().max));
}

void Trainer::compare_ranks(StepReport& report, double data_seconds, double comm_seconds) {
  compute_seconds_ =
      seconds_since(step_begin_) - data_seconds - comm_seconds + std::exchange(update_seconds_, 0);
  std::vector<double> mine{compute_seconds_, comm_seconds, data_seconds,
                           static_cast<double>(resident_bytes()),
                           static_cast<double>(state_.optimizer().rejected())};
  const auto own = std::ssize(mine);
  if (job_.gpu) {
    const GpuReading gpu = job_.gpu();
    mine.insert(mine.end(), gpu.begin(), gpu.end());
  }
  const std::vector<Spread> spreads = spread(job_.world, mine);
  tell_rejected(std::llround(spreads[4].max));
  report.compute_seconds = spreads[0];
  report.comm_seconds = spreads[1];
  report.data_seconds = spreads[2];
  report.resident_bytes = spreads[3];
  report.gpu.assign(spreads.begin() + own, spreads.end());
}

void Trainer::finish_report(StepReport& report) {
  report.step = state_.step;
  report.total_steps = plan_.steps;
  report.logged = logs(state_.step);
  if (report.logged) report.readings = step_.model().readings(step_.measures());
  report.tokens = state_.tokens;
  report.seconds = seconds_since(step_begin_);
  report.tokens_per_second = static_cast<double>(config_.train.batch_tokens) / report.seconds;
  report.flops_per_second = report.tokens_per_second * step_.model().cost().flops_per_token();
  if (config_.metrics.peak_tflops > 0) {
    report.mfu = report.flops_per_second / (config_.metrics.peak_tflops * 1e12 * job_.world.size());
  }
  report.hidden = step_.reduction().hidden();
  report.comm = job_.world.stats();
  health_.step_done(report, compute_seconds_);
}

void Trainer::evaluate_all() {
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
    saver_.tend(control);
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

int Trainer::stop_with_save() {
  tell_last_rejected();
  saver_.save_now();
  tell("stop", join("stopped on request at step ", state_.step));
  return static_cast<int>(stop_ == StopKind::kRequeue ? Fault::kSaved : Fault::kInterrupted);
}

int Trainer::run() {
  load();
  // A run that is over stays as it was described when it was made.
  if (job_.on_start && state_.step < plan_.steps) job_.on_start();
  data_.start(state_.next_sample);
  saver_.prepare();
  health_.check_weights(step_, state_.step, true);
  while (state_.step < plan_.steps) {
    take_step();
    health_.check_weights(step_, state_.step);
    if (stopping()) return stop_with_save();
    if (stop_ == StopKind::kSave || saver_.due()) saver_.start();
    const int64_t every = config_.eval.every_steps;
    if (every > 0 && state_.step % every == 0 && state_.step < plan_.steps) evaluate_all();
    if (stopping()) return stop_with_save();
  }
  if (profile_.missed()) {
    tell("profile", join("no step from ", job_.profile.first, " to ", job_.profile.second,
                         " was run, so the trace is empty"));
  }
  tell_last_rejected();
  saver_.save_now();  // before the last validation: whatever happens there, the weights are safe
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
