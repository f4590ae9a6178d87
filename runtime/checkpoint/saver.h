// Writes checkpoints beside training.
//
// A save copies this rank's share of the state, and a thread writes the copy: rank file, fsync,
// entries. When every rank has written, rank 0 writes the manifest, which lists and proves the
// coverage of every tensor, and renames the folder. No step of it talks to other ranks by itself:
// the trainer reduces `phase()` with the figures of each step and tells `publish()` when all are
// done, so a save adds no collective.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/trace.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state.h"

namespace anabranch {

class CheckpointSaver {
 public:
  enum class Phase : int {
    kIdle,        // nothing under way
    kWriting,     // this rank's file is being written
    kWritten,     // it is on disk; waiting for the others
    kPublishing,  // rank 0: manifest and rename
    kFailed       // the disk refused; error() says why
  };

  struct Retention {
    int64_t keep_last = 3;
    int64_t keep_every = 0;
  };

  // What one save cost this rank.
  struct Timing {
    double stall_seconds = 0;  // training stood still: the copy
    double write_seconds = 0;  // beside training
    int64_t bytes = 0;
  };

  CheckpointSaver(CheckpointDirectory directory, int rank, int ranks, Retention retention,
                  Trace* trace);
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Takes the memory of the copies and touches it, beside training: fresh pages are slow, and the
  // first save should not wait for them. Optional; before the first start().
  void prepare(const std::vector<StateItem>& items);

  // Copies this rank's share of `items` (stored_by) and starts to write it. `header` has everything
  // but the entries. The phase must be kIdle.
  //
  //   labels  names of their own under which the checkpoint is to be kept for good
  void start(const Manifest& header, const std::vector<StateItem>& items,
             std::vector<std::string> labels = {});

  [[nodiscard]] Phase phase() const { return phase_.load(); }

  // All ranks have written: rank 0 publishes and prunes beside training, the others are idle again.
  void publish();
  // Some rank failed: drop the attempt and be idle again. The published checkpoints are untouched.
  void abandon();

  // Waits until nothing of this rank is being written or published.
  void join();

  // What went wrong with the save of step(), on this rank; empty: nothing.
  [[nodiscard]] std::string error() const;

  [[nodiscard]] Timing timing() const { return timing_; }

  // The step of the save under way, or of the last one.
  [[nodiscard]] int64_t step() const { return header_.step; }

 private:
  struct Piece {
    CheckpointEntry entry;
    size_t item = 0;  // its place among the items
    Tensor copy;
  };

  // Makes pieces_ this rank's share of `items`, without contents.
  void lay_out(const std::vector<StateItem>& items);
  void write();           // on the thread
  void write_manifest();  // on the thread of rank 0
  void run(Phase on_success, void (CheckpointSaver::*work)());
  [[nodiscard]] std::string file_name(int rank, const char* extension) const;

  CheckpointDirectory directory_;
  int rank_, ranks_;
  Retention retention_;
  Trace* trace_;

  std::vector<Piece> pieces_;  // the copies; kept, so that later saves touch no fresh pages
  Manifest header_;
  std::vector<std::string> labels_;
  Timing timing_;

  std::thread thread_;
  std::atomic<Phase> phase_{Phase::kIdle};
  mutable std::mutex lock_;
  std::string error_;
};

}  // namespace anabranch
