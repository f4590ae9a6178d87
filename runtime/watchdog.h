// Sees that a rank moves on: a hung one ends the job instead of letting it wait for ever.
//
// No progress for max(60 s, 10 median steps) is a hang. Beats of the heartbeat are progress, and,
// at the pace of steps, collectives that begin or end. A rank that waits for a hung one finds out
// by its collective's deadline, which is the same limit and knows who is missing; the watchdog's
// thread is for the rank that hangs itself: it ends the process even if nothing else moves. A rank
// that has lost a peer and does not notice, as it waits for its GPU, is one too.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/log.h"
#include "core/base/trace.h"
#include "parallel/comm/group.h"
#include "parallel/rank_context.h"
#include "runtime/run_directory.h"

namespace anabranch {

class Watchdog {
 public:
  struct Options {
    double seconds = 0;       // the limit; 0: max(60 s, 10 median steps); below: no watchdog
    double long_seconds = 0;  // the limit before the first step, and while files are written
    double grace = 6;         // seconds to unwind after a hang or a lost peer
    std::string version = {};
    // Ends this process with an exit code, at once, from any thread; empty: it is left to the job.
    std::function<void(int)> give_up = {};
  };

  // Watches the heartbeat of `context` from now on. Keeps references; `world` is aborted on a hang.
  Watchdog(Group& world, const RankContext& context, const RunDirectory& directory,
           Options options);
  // No longer watches.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // One more step is done; the limits of steps hold from the first on.
  void step_done(double seconds);

  // How long the rank may go without progress now, in seconds; 0: for ever.
  [[nodiscard]] double limit() const;

  // The work has failed because of `reason`, a peer that was lost: writes where this rank is,
  // aborts the group, and ends the process if it has not unwound within the grace.
  void lost(const std::string& reason);

 private:
  struct Seen {
    int64_t beats = -1, starts = -1, finishes = -1;
    bool operator==(const Seen&) const = default;
  };

  void loop();
  [[nodiscard]] Seen look() const;
  [[nodiscard]] std::string lost_peer() const;  // how communication has failed; empty: it has not
  [[nodiscard]] double limit_held() const;      // lock_ held
  void bark(double idle, const std::string& peer);
  // log/watchdog-rank-NNNN.json, and a line in the log; in a thread, as the disk may hang too.
  void write(const std::string& reason, double idle);
  [[nodiscard]] std::string document(const std::string& reason, double idle) const;

  Group& world_;
  const RankContext& context_;
  const RunDirectory& directory_;
  Options options_;

  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::vector<double> steps_;  // seconds of the newest, in a ring
  size_t next_ = 0;
  double idle_ = 0;          // seconds without progress
  bool written_ = false;     // where this rank is
  bool going_down_ = false;  // only the grace is left
  bool over_ = false;
  std::thread thread_;
};

}  // namespace anabranch
