// A run's whole configuration: read strictly from YAML, written back resolved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/model_config.h"
#include "runtime/config/optim_config.h"
#include "runtime/config/sections.h"
#include "runtime/config/yaml.h"

namespace anabranch {

struct Config {
  int64_t schema = 1;
  DeviceChoice device = DeviceChoice::kAuto;
  RunConfig run;
  DataConfig data;
  ModelConfig model;
  TrainConfig train;
  OptimConfig optim;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  MetricsConfig metrics;

  void visit(auto&& f) {
    f("schema", schema, int64_t{1}, int64_t{1}, "version of these keys");
    f("device", device, "where to compute; auto: a GPU if there is one");
    f("run", run);
    f("data", data);
    f("model", model);
    f("train", train);
    f("optim", optim);
    f("parallel", parallel);
    f("checkpoint", checkpoint);
    f("eval", eval);
    f("metrics", metrics);
  }

  bool operator==(const Config&) const = default;
};

// Reads a configuration and fills what follows from other keys (run.name, run.dir,
// model.ffn_width, and what model.depth and train.budget give).
//
//   text     YAML
//   name     how messages call it; its stem is the default of run.name if run.dir is not set
//   sets     the command line's "a.b=c", applied in order over the file
//   changes  more of them, which make another configuration of that one: the keys of a family that
//            they leave are left out, unless they give them
//
// A preset applies first, then the keys. Checks types, ranges and unknown keys, not how keys agree:
// that is validate(). Throws Error (config) that lists every problem with its line.
Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<std::string>& sets = {},
                    const std::vector<std::string>& changes = {});

// The same from a file. Throws Error (config) too if it cannot be read.
Config load_config(const std::string& path, const std::vector<std::string>& sets = {},
                   const std::vector<std::string>& changes = {});

// The same from a tree; its values say where they were written.
Config read_config(const YamlNode& root, const std::string& name);

// Fills what follows from other keys; for configurations made in code.
void fill_derived(Config& config);

// Every key with its value as YAML, the default beside each changed one; parse_config() gives back
// an equal Config.
//
//   header  lines written on top as comments: versions, git hash
std::string dump_config(const Config& config, const std::vector<std::string>& header = {});

// What --help-config prints: every key with its default, its range and what it does.
std::string config_help();

// The same as the table of configs/README.md.
std::string config_table();

}  // namespace anabranch
