#include "runtime/config/validate_parallel.h"

#include <algorithm>

#include "core/base/error.h"
#include "parallel/mesh.h"
#include "runtime/config/number.h"
#include "runtime/config/validate.h"
#include "runtime/config/validate_deterministic.h"
#include "runtime/config/validate_moep.h"

namespace anabranch {
namespace {

int64_t hidden_width(ModelConfig model) {
  fill_sizes(model);
  return model.ffn_width;
}

// "96 and 100", the multiples of `unit` around n; n itself if it is one.
std::string nearest_multiples(int64_t n, int64_t unit) {
  const int64_t below = n / unit * unit;
  if (below == n) return join(n);
  return below > 0 ? join(below, " and ", below + unit) : join(unit);
}

// Why streams cannot be sliced, or nothing: slices are cut inside matrices, and mixing after the
// nonlinearity has no partial sums.
std::string no_slices(const Config& config, int64_t model) {
  const int64_t F = hidden_width(config.model);
  if (F % model != 0) {
    return join("parallel.model ", model, " does not divide model.ffn_width ", F, " (nearest ",
                nearest_multiples(F, model), ")");
  }
  if (config.model.cmollm.mix != MixPoint::kPre) return "model.mix is post";
  if (config.optim.matrix != MatrixOptimizer::kAdamw) {
    return join("optim.matrix is ", word_of(config.optim.matrix));
  }
  return "";
}

}  // namespace

bool has_streams(const ModelConfig& model) {
  return model.type == ModelType::kCmollm && model.cmollm.mode == StreamMode::kFfn;
}

int64_t input_copies(const ModelConfig& model) {
  const bool pipeline =
      model.type == ModelType::kCmollm && model.cmollm.mode == StreamMode::kPipeline;
  if (pipeline) return model.cmollm.streams;
  return model.type == ModelType::kParascale ? model.parascale.streams : 1;
}

StreamLayoutChoice stream_layout(const Config& config, int64_t model) {
  const StreamLayoutChoice wish = config.parallel.stream_layout;
  if (wish != StreamLayoutChoice::kAuto) return wish;
  if (is_of_any_layout(config)) return StreamLayoutChoice::kGather;
  return no_slices(config, model).empty() ? StreamLayoutChoice::kSlice
                                          : StreamLayoutChoice::kGather;
}

SplitLimit split_limit(const Config& config) {
  const ModelConfig& model = config.model;
  switch (model.type) {
    case ModelType::kCmollm:
      if (!has_streams(model)) break;
      if (config.parallel.stream_layout == StreamLayoutChoice::kGather ||
          is_of_any_layout(config)) {
        return {model.cmollm.streams, "model.streams"};
      }
      return {std::max(model.cmollm.streams, hidden_width(model)), "model.ffn_width"};
    case ModelType::kKappaMoe:
      return {model.kappa.experts, "model.experts"};
    case ModelType::kMoepMsit:
      return {std::ssize(model.moep.windows), "model.windows"};
    default:
      break;
  }
  if (input_copies(model) > 1) return {input_copies(model), "model.streams"};
  return {};
}

int64_t pool_sequences(const ModelConfig& model) {
  switch (model.type) {
    case ModelType::kKappaMoe:
      return model.kappa.pool_sequences;
    case ModelType::kMoepMsit:
      return pool_sequences(model.moep);
    default:
      return 1;
  }
}

std::vector<std::string> check_parallel(const Config& config) {
  std::vector<std::string> broken = check_any_layout(config);
  const int64_t model = std::max<int64_t>(config.parallel.model.value, 1);
  const SplitLimit limit = split_limit(config);
  const char* type = word_of(config.model.type).data();
  if (model > 1 && limit.parts == 1) {
    broken.push_back(join("parallel.model is ", model, ", and a ", type,
                          " model has no part to split: use auto or 1"));
  } else if (model > limit.parts) {
    broken.push_back(join("parallel.model is ", model, ", more than ", limit.what, " ", limit.parts,
                          ": use auto, or at most ", limit.parts));
  }
  if (config.model.type == ModelType::kMoepMsit) {
    for (std::string& line : check_segments(config)) broken.push_back(std::move(line));
  }
  if (model == 1) return broken;
  if (input_copies(config.model) > 1 &&
      config.parallel.stream_layout == StreamLayoutChoice::kSlice) {
    broken.push_back(join("parallel.stream_layout is slice, and the streams of a ", type,
                          " model that runs copies of its input stay whole: use auto or gather"));
  }
  if (!has_streams(config.model)) return broken;
  const std::string why = no_slices(config, model);
  if (config.parallel.stream_layout == StreamLayoutChoice::kSlice && !why.empty()) {
    broken.push_back(join("parallel.stream_layout is slice, and ", why, ": use gather"));
  }
  if (stream_layout(config, model) == StreamLayoutChoice::kGather &&
      model > config.model.cmollm.streams) {
    broken.push_back(join("parallel.model is ", model, ", more than model.streams ",
                          config.model.cmollm.streams,
                          " that parallel.stream_layout gather deals: use auto, or at most ",
                          config.model.cmollm.streams));
  }
  return broken;
}

std::vector<int> legal_model_sizes(const Config& config, int ranks) {
  std::vector<int> legal;
  for (int model = 1; model <= ranks; ++model) {
    if (ranks % model != 0) continue;
    Config other = config;
    other.parallel.model.value = model;
    if (check_parallel(other).empty()) legal.push_back(model);
  }
  return legal;
}

void check_ranks(const Config& config, int ranks) {
  check_any_layout_ranks(config, ranks);
  (void)plan_batch(config, ranks);
  const auto model = static_cast<int>(std::max<int64_t>(config.parallel.model.value, 1));
  const std::vector<int> legal = legal_model_sizes(config, ranks);
  if (std::ranges::find(legal, model) == legal.end()) {
    std::string values;
    for (const int value : legal) values += join(values.empty() ? "" : ", ", value);
    const SplitLimit limit = split_limit(config);
    throw config_error(
        "parallel.model is ", model, ", which does not go with ", counted(ranks, "rank"), " and ",
        limit.what, " ", limit.parts,
        ": it must divide the ranks and be at most the parts; legal values: ", values, ", or auto");
  }
  (void)mesh_shape(ranks, model, pool_sequences(config.model), config.train.micro_batch);
}

}  // namespace anabranch
