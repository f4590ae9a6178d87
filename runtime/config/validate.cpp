#include "runtime/config/validate.h"

#include <algorithm>
#include <functional>
#include <set>

#include "core/base/error.h"
#include "runtime/config/budget.h"
#include "runtime/config/kappa_recipe.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"
#include "runtime/config/validate_model.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {

namespace {

class Rules {
 public:
  template <class... Parts>
  void require(bool holds, Parts&&... parts) {
    if (holds) return;
    const std::string line = join(std::forward<Parts>(parts)...);
    message_ += (message_.empty() ? "" : "\n") + line;
  }

  void finish() const {
    if (!message_.empty()) throw Error(Fault::kConfig, message_);
  }

 private:
  std::string message_;
};

void check_run(Rules& rules, const RunConfig& run) {
  const bool plain = run.name.find_first_not_of(kNameCharacters) == std::string::npos;
  rules.require(plain && run.name[0] != '.', "run.name is \"", run.name,
                "\", must be letters, digits, '.', '_' and '-', and not start with '.'");
}

void check_data(Rules& rules, const DataConfig& data) {
  rules.require(!data.path.empty(), "data.path is not set: give the folder of a data set");
  std::set<std::string> names;
  for (const SourceConfig& source : data.sources) {
    rules.require(!source.name.empty(), "a source in data.sources has no name");
    rules.require(names.insert(source.name).second, "data.sources names ", source.name, " twice");
  }
}

void check_model(Rules& rules, const ModelConfig& model) {
  const auto is_set = [&](const char* key, int64_t value) {
    rules.require(value > 0, "model.", key, " is not set: give it, or a model.preset of ",
                  word_list(model_presets()));
  };
  is_set("layers", model.layers);
  is_set("width", model.width);
  is_set("heads", model.heads);
  is_set("context", model.context);
  ModelConfig named;
  apply_preset(named, model.preset);
  rules.require(!is_recipe(model.preset) || named.type == model.type, "model.preset ", model.preset,
                " is of model.type ", word_of(named.type), ", and model.type is ",
                word_of(model.type));
  rules.require(model.heads == 0 || model.width % model.heads == 0, "model.width ", model.width,
                " is not a multiple of model.heads ", model.heads);
}

// Steps beside epochs are what the epochs came to on some data: fill_steps() compares.
void check_length(Rules& rules, const TrainConfig& train) {
  std::vector<std::string> given;
  if (train.steps > 0) given.emplace_back("train.steps");
  if (train.tokens > 0) given.emplace_back("train.tokens");
  if (train.epochs > 0) given.emplace_back("train.epochs");
  rules.require(!given.empty(),
                "none of train.steps, train.tokens and train.epochs is set: give one of them");
  rules.require(given.size() < 2 || train.tokens == 0, word_list(given),
                " are set: give one of them and leave the others at 0");
}

void check_train(Rules& rules, const Config& config) {
  const TrainConfig& train = config.train;
  check_length(rules, train);
  rules.require(train.batch_tokens > 0, "train.batch_tokens is not set: give the tokens of a step");
  const int64_t steps = planned_steps(train);
  rules.require(steps == 0 || config.optim.warmup_steps <= steps, "optim.warmup_steps ",
                config.optim.warmup_steps, " is more than the ", counted(steps, "step"),
                " of the run: lower it for a short one, to 0 for instance");
  if (train.precision == Precision::kFp64) {
    rules.require(config.device != DeviceChoice::kCuda,
                  "train.precision fp64 runs on the CPU only, and device is cuda");
    rules.require(train.grad_wire == GradWire::kFp32,
                  "train.grad_wire bf16 does not go with train.precision fp64");
  }
}

void check_saves(Rules& rules, const CheckpointConfig& checkpoint) {
  const std::vector<int64_t>& words = checkpoint.words;
  const auto falls = std::ranges::adjacent_find(words, std::greater_equal<>());
  rules.require(falls == words.end(),
                "checkpoint.words is not rising: ", falls == words.end() ? 0 : *falls,
                " comes before ", falls == words.end() ? 0 : falls[1]);
  if (checkpoint.keep_every == 0) return;
  rules.require(checkpoint.every_steps > 0, "checkpoint.keep_every ", checkpoint.keep_every,
                " needs checkpoint.every_steps, which is 0");
  rules.require(checkpoint.every_steps == 0 || checkpoint.keep_every % checkpoint.every_steps == 0,
                "checkpoint.keep_every ", checkpoint.keep_every,
                " is not a multiple of checkpoint.every_steps ", checkpoint.every_steps);
}

void check_listen(Rules& rules, const std::string& listen) {
  if (listen == "off") return;
  const size_t colon = listen.rfind(':');
  int64_t port = -1;
  const bool reads = colon != std::string::npos && colon > 0 &&
                     parse_number(listen.substr(colon + 1), port) && port >= 0 && port <= 65535;
  rules.require(reads, "metrics.listen is \"", listen,
                "\", must be host:port with a port from 0 to 65535, or off");
}

}  // namespace

int64_t planned_steps(const TrainConfig& train) {
  if (train.steps > 0 || train.batch_tokens == 0) return train.steps;
  return train.tokens / train.batch_tokens + (train.tokens % train.batch_tokens != 0 ? 1 : 0);
}

void validate(const Config& config) {
  Rules rules;
  check_run(rules, config.run);
  check_data(rules, config.data);
  check_model(rules, config.model);
  for (const std::string& line : check_family(config)) rules.require(false, line);
  for (const std::string& line : check_budget(config.model, config.train)) {
    rules.require(false, line);
  }
  check_train(rules, config);
  check_saves(rules, config.checkpoint);
  check_listen(rules, config.metrics.listen);
  for (const std::string& line : check_parallel(config)) rules.require(false, line);
  rules.finish();
}

BatchPlan plan_batch(const Config& config, int64_t ranks) {
  const int64_t batch = config.train.batch_tokens;
  const int64_t unit = config.model.context * config.train.micro_batch * ranks;
  AB_CHECK(ranks > 0 && unit > 0 && batch > 0, "plan_batch before validate: ", ranks, " ranks, ",
           unit, " tokens of a micro-batch over all ranks, ", batch, " of a step");
  if (batch % unit != 0) {
    const int64_t below = batch / unit * unit;
    int64_t smaller = config.train.micro_batch - 1;
    while (smaller > 0 && batch % (config.model.context * smaller * ranks) != 0) --smaller;
    throw config_error("train.batch_tokens ", batch, " is not a multiple of model.context ",
                       config.model.context, " x train.micro_batch ", config.train.micro_batch,
                       " x ", counted(ranks, "rank"), " = ", unit, "; nearest legal values: ",
                       below > 0 ? join(below, " and ", below + unit) : join(unit),
                       smaller > 0 ? join(", or train.micro_batch ", smaller) : std::string());
  }
  return {batch / config.model.context, batch / unit, planned_steps(config.train)};
}

std::string batch_text(const BatchPlan& plan) {
  const std::string steps = plan.steps > 0 ? counted(plan.steps, "step") : "steps";
  return steps + " of " + counted(plan.sequences, "sequence") + ", " +
         join(plan.accumulation, " micro-batch", plan.accumulation == 1 ? "" : "es") +
         " a rank and step";
}

int64_t planned_steps(const std::string& config_file) {
  const Config config = load_config(config_file);
  validate(config);
  return plan_batch(config, 1).steps;
}

}  // namespace anabranch
