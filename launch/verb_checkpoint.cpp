#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/interchange_verbs.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/config/number.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

struct CheckpointWish {
  std::string path;
  bool json = false;
};

// The checkpoints that a path names, newest first: one, or all of a run.
std::vector<fs::path> checkpoints_of(const fs::path& path) {
  if (fs::exists(path / "manifest.json")) return {path};
  const CheckpointDirectory directory(path / "checkpoints");
  std::vector<fs::path> all;
  for (const int64_t step : directory.steps()) all.push_back(directory.at(step));
  if (all.empty()) throw data_error(path.string(), " holds no checkpoint");
  return all;
}

// Which of a tensor's elements a slice has, if not all: " [0, 4) of axis 1 elements [0, 96) of it".
std::string slice_text(const CheckpointEntry& e) {
  std::string text;
  if (!(e.part == Part::all(e.part.whole))) {
    text += join(" [", e.part.begin, ", ", e.part.begin + e.part.extent, ") of axis ", e.part.axis);
  }
  if (e.count != e.part.count()) {
    text += join(" elements [", e.from, ", ", e.from + e.count, ")", text.empty() ? "" : " of it");
  }
  return text;
}

void inspect(const CheckpointWish& wish) {
  auto all = nlohmann::ordered_json::array();
  for (const fs::path& path : checkpoints_of(wish.path)) {
    const Manifest m = read_manifest(path);
    int64_t bytes = 0;
    std::set<std::string> names;
    for (const CheckpointEntry& e : m.entries) {
      bytes += e.bytes();
      names.insert(e.name);
    }
    if (wish.json) {
      all.push_back({{"path", path.string()},
                     {"step", m.step},
                     {"next_sample", m.next_sample},
                     {"tensors", names.size()},
                     {"bytes", bytes},
                     {"counters", m.counters},
                     {"facts", m.facts}});
      continue;
    }
    std::cout << fmt::format("{}: step {}, next sample {}, {}, {}\n", path.string(), m.step,
                             m.next_sample, counted(std::ssize(names), "tensor"),
                             bytes_text(static_cast<double>(bytes)));
    if (checkpoints_of(wish.path).size() > 1) continue;
    for (const CheckpointEntry& e : m.entries) {
      std::cout << join("  ", e.name, " ", name_of(e.type), e.part.whole, slice_text(e), " in ",
                        e.file, "\n");
    }
  }
  if (wish.json) std::cout << all.dump(2) << "\n";
}

// Says of each checkpoint whether every byte is right; the exit code is that of the newest's.
int verify(const CheckpointWish& wish) {
  auto all = nlohmann::ordered_json::array();
  int bad = 0;
  for (const fs::path& path : checkpoints_of(wish.path)) {
    std::string problem;
    try {
      verify_checkpoint(path);
    } catch (const Error& error) {
      problem = error.what();
      ++bad;
    }
    all.push_back({{"path", path.string()}, {"good", problem.empty()}, {"problem", problem}});
    if (!wish.json) {
      std::cout << path.string() << ": " << (problem.empty() ? "good" : "DAMAGED: " + problem)
                << "\n";
    }
  }
  if (wish.json) std::cout << all.dump(2) << "\n";
  return bad == 0 ? 0 : static_cast<int>(Fault::kData);
}

}  // namespace

void add_checkpoint(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("checkpoint", "looks at checkpoints, and hands them on");
  verb->require_subcommand(1);
  auto wish = std::make_shared<CheckpointWish>();
  const auto add = [&](const char* name, const char* what) {
    CLI::App* sub = verb->add_subcommand(name, what);
    sub->add_option("PATH", wish->path, "run directory or checkpoint")->required();
    sub->add_flag("--json", wish->json, "machine-readable");
    return sub;
  };
  add("inspect", "what a checkpoint holds")->callback([wish] {
    run_alone([&] { inspect(*wish); });
  });
  add("verify", "reads every byte and checks it")->callback([wish, &exit_code] {
    run_alone([&] { exit_code = verify(*wish); });
  });

  add_checkpoint_export(*verb);
  add_checkpoint_import(*verb);
}

}  // namespace anabranch
