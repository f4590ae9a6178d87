#include "runtime/planner/layout.h"

#include <algorithm>

#include "core/base/error.h"
#include "parallel/division.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {
namespace {

// Sizes of a model group that are worth a word, ascending.
std::vector<int> model_sizes(const Config& config, int ranks) {
  // Slices of a hidden axis are any number; those that streams have too are worth a word.
  const int64_t parts =
      has_streams(config.model) ? config.model.cmollm.streams : split_limit(config).parts;
  std::vector<int> sizes;
  for (int m = 1; m <= ranks; ++m) {
    if (ranks % m == 0 || (m <= 64 && parts % m == 0 && m <= parts)) sizes.push_back(m);
  }
  return sizes;
}

std::string message_of(const Error& error) {
  std::string text = error.what();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// Why a layout is not legal, or its mesh.
std::string reason(const Config& config, int ranks, int model, MeshShape& mesh) {
  const std::vector<std::string> broken = check_parallel(config);
  if (!broken.empty()) return broken.front();
  try {
    mesh = mesh_shape(ranks, model, pool_sequences(config.model), config.train.micro_batch);
  } catch (const Error& error) {
    return message_of(error);
  }
  return "";
}

void add(std::vector<LayoutChoice>& to, const Config& config, int ranks, int model,
         StreamLayout streams) {
  Config trial = config;
  trial.parallel.model.value = model;
  const bool slice = streams == StreamLayout::kSlice;
  trial.parallel.stream_layout = slice ? StreamLayoutChoice::kSlice : StreamLayoutChoice::kGather;
  LayoutChoice choice;
  choice.layout.mesh = {ranks % model == 0 ? ranks / model : 0, model, 1};
  choice.layout.streams = streams;
  choice.layout.has_streams = has_streams(config.model) && model > 1;
  choice.refused = reason(trial, ranks, model, choice.layout.mesh);
  const bool said = !to.empty() && !choice.refused.empty() && to.back().refused == choice.refused;
  if (said) return;  // of the other layout of streams
  if (choice.refused.empty() && ranks > 1) {
    to.push_back(choice);
    choice.layout.zero = true;
  }
  to.push_back(choice);
}

bool begins(const std::string& text, const std::string& word) { return text.rfind(word, 0) == 0; }

bool ends(const std::string& text, const std::string& word) {
  return text.size() >= word.size() &&
         text.compare(text.size() - word.size(), word.size(), word) == 0;
}

// "3" of "h.0.experts.3.ffn.in.weight"; -1 if there is none.
int64_t expert_of(const std::string& name) {
  const std::string word = ".experts.";
  const size_t at = name.find(word);
  if (at == std::string::npos) return -1;
  const size_t begin = at + word.size(), end = name.find('.', begin);
  int64_t expert = -1;
  const bool reads =
      end != std::string::npos && parse_number(name.substr(begin, end - begin), expert);
  return reads ? expert : -1;
}

}  // namespace

std::string Layout::name() const {
  std::string text = mesh.data > 0 ? join("data ", mesh.data, " x ") : std::string();
  text += join("model ", mesh.model);
  if (has_streams) text += streams == StreamLayout::kSlice ? ", slice" : ", gather";
  if (ranks() > 1) text += zero ? ", zero 1" : ", zero 0";
  return text;
}

std::vector<LayoutChoice> layouts(const Config& config, const Cluster& cluster) {
  const int ranks = cluster.ranks();
  (void)plan_batch(config, ranks);
  std::vector<LayoutChoice> all;
  const bool whole_alone = split_limit(config).parts == 1;
  for (const int m : model_sizes(config, ranks)) {
    add(all, config, ranks, m, StreamLayout::kGather);
    if (has_streams(config.model) && m > 1) add(all, config, ranks, m, StreamLayout::kSlice);
    if (m > 1 && whole_alone) break;  // the others are refused alike
  }
  return all;
}

SplitRule split_rule(const Param& w, const Config& config, const Layout& layout) {
  if (layout.mesh.model == 1) return {};
  const bool slice = layout.streams == StreamLayout::kSlice;
  switch (config.model.type) {
    case ModelType::kCmollm:
      if (!layout.has_streams) return {};
      if (ends(w.name, ".ffn.streams.weight") || ends(w.name, ".ffn.streams.bias")) {
        const int axis = slice ? 1 : 0;
        return {axis, w.global_shape[axis]};
      }
      if (slice && ends(w.name, ".ffn.down.weight")) return {1, w.global_shape[1]};
      return {};
    case ModelType::kKappaMoe:
      if (w.name.find(".experts.") == std::string::npos) return {};
      return {0, w.global_shape[0]};
    case ModelType::kMoepMsit: {
      const int64_t expert = begins(w.name, "h.") ? expert_of(w.name) : -1;
      if (expert < 0) return {};
      return {-1, std::ssize(config.model.moep.windows), expert};
    }
    default:
      return {};
  }
}

int64_t part_count(const Param& w, const SplitRule& rule, const Layout& layout) {
  const int64_t whole = w.global_shape.count();
  if (!rule.split()) return whole;
  const Division division{rule.parts, layout.mesh.model};
  if (rule.one_of >= 0) return rule.one_of < division.count(0) ? whole : 0;  // rank 0 is fullest
  return whole / w.global_shape[rule.axis] * division.count(0);
}

}  // namespace anabranch
