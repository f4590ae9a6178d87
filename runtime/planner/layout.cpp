#include "runtime/planner/layout.h"

#include <algorithm>

#include "core/base/error.h"
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
  LayoutChoice choice;
  choice.layout.mesh = {ranks % model == 0 ? ranks / model : 0, model, 1};
  choice.layout.streams = streams;
  choice.layout.has_streams = has_streams(config.model) && model > 1;
  choice.refused = reason(laid_out(config, choice.layout), ranks, model, choice.layout.mesh);
  const bool said = !to.empty() && !choice.refused.empty() && to.back().refused == choice.refused;
  if (said) return;  // of the other layout of streams
  if (choice.refused.empty() && ranks > 1) {
    to.push_back(choice);
    choice.layout.zero = true;
  }
  to.push_back(choice);
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

Config laid_out(const Config& config, const Layout& layout) {
  Config laid = config;
  laid.parallel.model.value = layout.mesh.model;
  const bool slice = layout.streams == StreamLayout::kSlice;
  laid.parallel.stream_layout = slice ? StreamLayoutChoice::kSlice : StreamLayoutChoice::kGather;
  laid.parallel.zero = layout.zero ? 1 : 0;
  return laid;
}

}  // namespace anabranch
