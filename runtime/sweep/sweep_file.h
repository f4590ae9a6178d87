// A sweep file: one base configuration and the keys in which many runs differ.
//
//   base: base/cmollm.yaml     a run's configuration, by its path from this file
//   vocabulary: 50257          that parameters and multiply-adds are counted for
//   seeds: [1, 2, 3]           run.seed of each point's runs
//   set: {model.context: 512}  keys of every point
//   zip: {size: [s, m], model.width: [64, 128]}   lists that move together
//   groups:
//     - family: cmollm
//       name: "{size}-n{model.streams}"
//       grid: {model.streams: [2, 4]}             every combination
//       skip: [{size: m, model.streams: 4}]
//     - family: widened
//       list: [{n: 2}, {n: 4}]                    written out
//       when: [{size: s}]
//       match_macs: "{size}-n{n}"
//   stop_early: {after_fraction: 0.2, margin: 0.1, per: [size]}   sweep_rules.h
//   choose: [{key: optim.lr, from: pilot.yaml, per: [size]}]
//
// A key with a dot is a configuration's; one without is a label, for names and conditions alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/yaml.h"
#include "runtime/sweep/sweep_rules.h"

namespace anabranch {

// Choices of which every point takes one. A choice's values have the keys that they set; its first
// key names the point.
struct SweepAxis {
  std::vector<std::vector<YamlNode>> choices;
};

// Holds for a point if each of its keys has the value given, or one of those in a list.
struct SweepRule {
  std::string where;
  std::vector<YamlNode> conditions;
};

// A pattern of text and of keys in braces.
struct SweepPattern {
  std::string where, text;  // empty: not given
};

// Points of one family: the product of the axes, of which the first varies slowest.
struct SweepGroup {
  std::string where, family;
  SweepPattern name;        // of a point; empty: the family and the axes' values
  SweepPattern match_macs;  // the point whose multiply-adds model.ffn_width is chosen to equal
  std::vector<YamlNode> set;
  std::vector<SweepAxis> axes;
  std::vector<SweepRule> skip, when;
};

struct SweepFile {
  std::string path, name;  // the name is the file's without folder and ending
  std::string base;        // path of the base configuration
  int64_t vocabulary = 0;
  std::vector<int64_t> seeds;  // empty: the base's own
  std::vector<SweepGroup> groups;
  std::optional<EarlyStop> stop_early;
  std::vector<ChooseRule> choose;
};

// Reads a sweep file, strictly: whether its configuration keys exist shows when it is expanded.
//
//   text  YAML
//   path  of the file, for messages and to find the base
//
// Throws Error (config) with the line: an unknown key with the nearest one, lists of unequal length
// in zip, a key given twice for one point, keys of the run section that every run has of its own.
SweepFile parse_sweep(const std::string& text, const std::string& path);

// The same from a file. Throws Error (config) too if it cannot be read.
SweepFile load_sweep(const std::string& path);

// How a value stands in names: a list's entries with "_" between them.
[[nodiscard]] std::string setting_text(const YamlNode& value);

// Whether a key is a configuration's, not a label.
[[nodiscard]] bool is_config_key(const std::string& key);

}  // namespace anabranch
