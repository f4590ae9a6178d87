// What of a run is saved and when: one checkpoint at a time beside training, and one of the very
// step where that is needed.
//
// A save that comes due while one is under way waits for it: training stands still rather than
// falls behind (back-pressure). Ranks tell each other where their part of a save is in the sums of
// control.h, so a save adds no collective while steps are made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/saver.h"
#include "runtime/control.h"
#include "runtime/run_data.h"
#include "runtime/trainer.h"
#include "runtime/training_state.h"

namespace anabranch {

class RunSaver {
 public:
  // Keeps references.
  //
  //   plan  of the batch, of which a step takes the sequences
  RunSaver(const TrainJob& job, const BatchPlan& plan, const RunData& data, TrainingState& state);

  [[nodiscard]] const CheckpointDirectory& checkpoints() const { return checkpoints_; }

  // The run goes on from a checkpoint of state.step: says which marks of checkpoint.words it is
  // past without having one.
  void resumed();

  // Takes the memory of the copies, beside training; before the first step.
  void prepare() { saver_.prepare(state_.items()); }

  // This rank's, to be told to the others at every boundary.
  [[nodiscard]] CheckpointSaver::Phase phase() const { return saver_.phase(); }

  // Whether the step that was done last is one to save, as configured.
  [[nodiscard]] bool due() const;

  // Starts to save this step; waits for a save under way. As all below, on all ranks together.
  void start();
  // Moves the save under way, if there is one, on by what all ranks have told.
  void tend(const Control& control);
  // Waits until none is under way.
  void drain();
  // Makes sure of a verified checkpoint of this very step. Throws Error (io, 74) if it cannot be
  // written.
  void save_now();

 private:
  // The marks of checkpoint.words that the last step passed, as names of its checkpoint.
  [[nodiscard]] std::vector<std::string> word_labels() const;
  // The save under way is over.
  void report(bool ok);

  const TrainJob& job_;
  const CheckpointConfig& config_;
  const BatchPlan& plan_;
  const RunData& data_;
  TrainingState& state_;
  CheckpointDirectory checkpoints_;
  CheckpointSaver saver_;
  bool saving_ = false;
  int64_t saved_step_ = -1;  // of the newest good checkpoint of this run
  std::optional<SaveReport> last_save_;
};

}  // namespace anabranch
