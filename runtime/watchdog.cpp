#include "runtime/watchdog.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <future>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "data/hdf5/raw_file.h"
#include "parallel/comm/patience.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

constexpr double kLeastSeconds = 60, kMedianSteps = 10;
constexpr size_t kSteps = 33;  // of which the median is taken

// The collectives' own deadline comes first: it knows who is missing.
constexpr double kLater = 1;  // seconds

// A rank whose communication has failed has no more to wait for, but may wait for its GPU all the
// same: for a collective that nothing ends.
constexpr double kToNotice = 1;  // seconds

constexpr double kDiskSeconds = 3;  // for writing down where the rank is

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// "log/watchdog-rank-0003.json", with a number if an earlier incident has left one.
std::string free_name(const RunDirectory& directory, int rank) {
  const std::string stem = "log/watchdog-" + directory.log(rank).stem().string();
  std::string name = stem + ".json";
  std::error_code ignored;
  for (int n = 2; fs::exists(directory.path() / name, ignored); ++n) {
    name = join(stem, ".", n, ".json");
  }
  return name;
}

}  // namespace

Watchdog::Watchdog(Group& world, const RankContext& context, const RunDirectory& directory,
                   Options options)
    : world_(world), context_(context), directory_(directory), options_(std::move(options)) {
  thread_ = std::thread([this] { loop(); });
}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock hold(lock_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::step_done(double seconds) {
  const std::scoped_lock hold(lock_);
  if (steps_.size() < kSteps) {
    steps_.push_back(seconds);
  } else {
    steps_[next_++ % kSteps] = seconds;
  }
}

double Watchdog::limit() const {
  const std::scoped_lock hold(lock_);
  return limit_held();
}

double Watchdog::limit_held() const {
  if (options_.seconds < 0) return 0;
  if (steps_.empty() || context_.heartbeat->pace() == Heartbeat::Pace::kLong) {
    return options_.long_seconds;
  }
  if (options_.seconds > 0) return options_.seconds;
  return std::max(kLeastSeconds, kMedianSteps * median(steps_));
}

void Watchdog::lost(const std::string& reason) {
  double idle = 0;
  {
    const std::scoped_lock hold(lock_);
    if (options_.seconds < 0) return;
    going_down_ = true;
    idle = idle_;
  }
  changed_.notify_all();
  write(reason, idle);
  world_.abort(reason);
}

std::string Watchdog::lost_peer() const {
  try {
    world_.check();
  } catch (const Error& error) {
    if (error.fault() == Fault::kPeer) return error.what();
  }
  return "";
}

Watchdog::Seen Watchdog::look() const {
  Seen seen{context_.heartbeat->beats()};
  // Where ranks meet again and again to wait for a save, that they meet is no progress.
  if (context_.heartbeat->pace() == Heartbeat::Pace::kLong) return seen;
  const CommProgress comm = world_.progress();
  seen.starts = comm.starts;
  seen.finishes = comm.finishes;
  return seen;
}

void Watchdog::loop() {
  constexpr auto kLook = std::chrono::milliseconds(100);
  Patience idle, dying;
  Seen seen;
  std::unique_lock hold(lock_);
  while (!over_) {
    changed_.wait_for(hold, kLook);
    if (over_) return;
    if (going_down_) {
      if (dying.tick() < options_.grace) continue;
      if (!options_.give_up) return;
      hold.unlock();
      return options_.give_up(static_cast<int>(Fault::kPeer));
    }
    dying.reset();
    const double limit = limit_held();
    hold.unlock();
    const Seen now = look();
    const std::string peer = lost_peer();
    hold.lock();
    if (now != seen) {
      seen = now;
      idle.reset();
    }
    idle_ = idle.tick();
    const double most = peer.empty() ? limit : std::min(limit, kToNotice);
    if (limit <= 0 || idle_ < most + kLater || going_down_) continue;
    going_down_ = true;
    const double seconds = idle_;
    hold.unlock();
    bark(seconds, peer);
    hold.lock();
  }
}

void Watchdog::bark(double idle, const std::string& peer) {
  const std::string reason = join("no progress for ", static_cast<int64_t>(idle), " s in step ",
                                  context_.heartbeat->step(), ", ", context_.heartbeat->phase(),
                                  peer.empty() ? "" : "; ", peer);
  write(reason, idle);
  world_.abort(reason);
}

void Watchdog::write(const std::string& reason, double idle) {
  {
    const std::scoped_lock hold(lock_);
    if (std::exchange(written_, true)) return;
  }
  std::packaged_task<void()> task([folder = directory_.path(), log = context_.log,
                                   name = free_name(directory_, context_.rank),
                                   text = document(reason, idle), reason] {
    try {
      write_atomically((folder / name).string(), text);
    } catch (const Error&) {
      // the log line is what is left
    }
    if (log == nullptr) return;
    log->error(join("watchdog: ", reason, "; see ", name));
    log->flush();
  });
  const std::future<void> done = task.get_future();
  std::thread(std::move(task)).detach();
  done.wait_for(std::chrono::duration<double>(kDiskSeconds));
}

std::string Watchdog::document(const std::string& reason, double idle) const {
  const CommProgress comm = world_.progress();
  nlohmann::ordered_json json;
  json["time"] = utc_now();
  json["rank"] = context_.rank;
  json["ranks"] = context_.size;
  json["host"] = host_name();
  json["process"] = getpid();
  json["step"] = context_.heartbeat->step();
  json["phase"] = context_.heartbeat->phase();
  json["op"] = context_.trace != nullptr ? context_.trace->op() : "none";
  json["collective_started"] = comm.started;
  json["collective_finished"] = comm.finished;
  json["collectives"] = comm.starts;
  json["seconds_without_progress"] = idle;
  json["reason"] = reason;
  json["version"] = options_.version;
  return json.dump(2) + "\n";
}

}  // namespace anabranch
