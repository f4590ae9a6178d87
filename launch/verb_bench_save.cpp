#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/bench_verbs.h"
#include "launch/options.h"
#include "launch/progress.h"
#include "launch/stop_signals.h"
#include "runtime/bench/save_bench.h"
#include "runtime/bench/timing.h"
#include "runtime/memory_need.h"
#include "runtime/rank_plan.h"
#include "runtime/train_step.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

constexpr int kInterrupted = 130;

struct SaveWish {
  BenchModel model;
  std::string dir = fs::temp_directory_path().string();
  int64_t steps = 3, saves = 3;
};

// A new folder that all ranks see, which rank 0 makes and removes.
class SharedFolder {
 public:
  SharedFolder(const std::string& parent, RankProcess& process) : owner_(process.first()) {
    // Named after the process of rank 0.
    Tensor id = Tensor::of<int64_t>({1}, {owner_ ? int64_t{getpid()} : 0});
    process.world().all_reduce_max(id).wait();
    path_ = fs::path(parent) / fmt::format("anabranch-bench-{}", id.data<int64_t>()[0]);
    std::error_code failure;
    const bool made = !owner_ || fs::create_directory(path_, failure);
    if (!made) {
      owner_ = false;
      throw io_error("cannot make ", path_.string(), ": ",
                     failure ? failure.message() : "it is there already",
                     "; give --dir a folder that exists");
    }
    process.world().barrier();
  }

  ~SharedFolder() {
    std::error_code ignored;
    if (owner_) fs::remove_all(path_, ignored);
  }

  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  bool owner_;
  fs::path path_;
};

void print_json(const SaveBench& b, int ranks) {
  size_t steps = 0;
  for (const SaveCost& cost : b.later) steps += cost.step_seconds.size();
  const double plain = median(b.step_seconds);
  const nlohmann::ordered_json document = {
      {"ranks", ranks},
      {"bytes", b.bytes},
      {"step_seconds", plain},
      {"first_stall_seconds", b.first.stall_seconds},
      {"stall_seconds", b.stall()},
      {"stall_share_of_step", b.stall() / plain},
      {"write_seconds", b.write()},
      {"write_bytes_per_second", static_cast<double>(b.bytes) / b.write()},
      {"steps_beside", steps},
      {"step_seconds_beside", b.step_beside()},
      {"lost_seconds", b.lost()}};
  std::cout << document.dump(2) << "\n";
}

void print(const SaveBench& b, int ranks) {
  const double plain = median(b.step_seconds);
  const std::string beside = b.step_beside() > 0
                                 ? fmt::format("{:.3f} s while a save is written", b.step_beside())
                                 : std::string("the saves were written before a step was done");
  std::cout << fmt::format(
      "rank 0 of {} saves {}\n"
      "stall  {:.1f} ms, {:.2f}% of a step (the first save {:.1f} ms)\n"
      "write  {:.3f} s beside training, {:.1f} MB/s\n"
      "step   {:.3f} s alone, {}\n"
      "lost   {:.3f} s a save in all\n",
      ranks, bytes_text(static_cast<double>(b.bytes)), 1e3 * b.stall(), 100 * b.stall() / plain,
      1e3 * b.first.stall_seconds, b.write(), static_cast<double>(b.bytes) / b.write() * 1e-6,
      plain, beside, b.lost());
}

int run(const SaveWish& wish, StopRequest& stop, RankProcess& process) {
  const Config config = bench_config(wish.model, process);
  process.require(need_of(config, wish.model.vocabulary)(shape_of(config, process.world().size())));
  const SharedFolder folder(wish.dir, process);
  const std::optional<SaveBench> result =
      bench_save(config, {wish.model.vocabulary, folder.path(), wish.steps, wish.saves},
                 process.world(), process.context(), stop);
  if (!result) return kInterrupted;
  if (!process.first()) return 0;
  if (wish.model.json) {
    print_json(*result, process.world().size());
  } else {
    print(*result, process.world().size());
  }
  return 0;
}

}  // namespace

void add_bench_save(CLI::App& bench, int& exit_code) {
  CLI::App* verb = bench.add_subcommand("save", "what a checkpoint costs the training beside it");
  auto wish = std::make_shared<SaveWish>();
  add_bench_options(*verb, wish->model, true);
  verb->add_option("--dir", wish->dir, "where to save, in a folder that is removed again");
  add_whole(*verb, "--steps", wish->steps, {1, 100000}, "measured steps without a save");
  add_whole(*verb, "--saves", wish->saves, {2, 1000}, "the first one counts apart");
  verb->callback([wish, &exit_code] {
    StopRequest stop;
    const StopSignals signals(stop);  // so that an interrupted bench removes its folder
    exit_code = run_rank([&](RankProcess& process) { return run(*wish, stop, process); });
  });
}

}  // namespace anabranch
