#include "runtime/sweep/record.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "runtime/config/validate.h"
#include "runtime/models/cost_text.h"

namespace anabranch {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const RecordedPoint& point) {
  Json entry = {{"id", point.id},
                {"family", point.family},
                {"type", point.type},
                {"settings", Json::object()},
                {"layers", point.layers},
                {"width", point.width},
                {"ffn_width", point.ffn_width},
                {"context", point.context},
                {"steps", point.steps},
                {"batch_tokens", point.batch_tokens}};
  for (const auto& [key, value] : point.settings) entry["settings"][key] = value;
  if (!point.matches.empty()) entry["matches"] = point.matches;
  for (const auto& [name, value] : cost_fields(point.cost)) entry[name] = value;
  return entry;
}

RecordedPoint point_of(const Json& entry) {
  RecordedPoint point;
  entry.at("id").get_to(point.id);
  entry.at("family").get_to(point.family);
  entry.at("type").get_to(point.type);
  for (const auto& [key, value] : entry.at("settings").items()) {
    point.settings.emplace_back(key, value.get<std::string>());
  }
  point.matches = entry.value("matches", "");
  entry.at("layers").get_to(point.layers);
  entry.at("width").get_to(point.width);
  entry.at("ffn_width").get_to(point.ffn_width);
  entry.at("context").get_to(point.context);
  entry.at("steps").get_to(point.steps);
  entry.at("batch_tokens").get_to(point.batch_tokens);
  if (point.steps < 0 || point.batch_tokens < 1) {
    throw data_error("point ", point.id, " has ", point.steps, " steps of ", point.batch_tokens,
                     " tokens");
  }
  entry.at("parameters").get_to(point.cost.parameters);
  entry.at("non_embedding_parameters").get_to(point.cost.non_embedding_parameters);
  entry.at("linear_macs").get_to(point.cost.linear_macs);
  entry.at("front_end_macs").get_to(point.cost.front_end_macs);
  entry.at("attention_macs").get_to(point.cost.attention_macs);
  return point;
}

Json json_of(const EarlyStop& rule) {
  Json entry = {{"by", word_of(rule.by)}, {"margin", rule.margin}, {"keep", rule.keep}};
  entry["after_fraction"] = rule.after_fraction;
  entry["after_tokens"] = rule.after_tokens;
  entry["per"] = rule.per;
  return entry;
}

EarlyStop early_stop_of(const Json& entry) {
  EarlyStop rule;
  rule.by =
      entry.at("by") == word_of(LossKind::kLoss) ? LossKind::kLoss : LossKind::kValidationLoss;
  entry.at("margin").get_to(rule.margin);
  entry.at("keep").get_to(rule.keep);
  entry.at("after_fraction").get_to(rule.after_fraction);
  entry.at("after_tokens").get_to(rule.after_tokens);
  entry.at("per").get_to(rule.per);
  return rule;
}

SweepRecord record_from(const Json& document) {
  SweepRecord record;
  document.at("sweep").get_to(record.name);
  document.at("file").get_to(record.file);
  document.at("base").get_to(record.base);
  record.scale = document.at("scale") == "tiny" ? SweepScale::kTiny : SweepScale::kFull;
  document.at("sets").get_to(record.sets);
  document.at("vocabulary").get_to(record.vocabulary);
  if (document.contains("stop_early")) {
    record.stop_early = early_stop_of(document.at("stop_early"));
  }
  for (const Json& entry : document.at("points")) {
    for (const Json& run : entry.at("runs")) {
      record.runs.push_back({run.at("id"), record.points.size(), run.at("seed")});
    }
    record.points.push_back(point_of(entry));
  }
  return record;
}

}  // namespace

std::string RecordedPoint::setting(const std::string& key) const {
  if (key == "family") return family;
  for (const auto& [name, value] : settings) {
    if (name == key) return value;
  }
  return "";
}

SweepRecord record_of(const Sweep& sweep, const SweepOptions& options) {
  SweepRecord record{.name = sweep.name,
                     .file = sweep.path,
                     .base = sweep.base,
                     .scale = options.scale,
                     .sets = options.sets,
                     .vocabulary = sweep.vocabulary,
                     .points = {},
                     .runs = sweep.runs,
                     .stop_early = sweep.stop_early};
  for (const SweepPoint& point : sweep.points) {
    const ModelConfig& model = point.config.model;
    record.points.push_back({.id = point.id,
                             .family = point.family,
                             .type = std::string(word_of(model.type)),
                             .matches = point.matches,
                             .settings = point.settings,
                             .layers = model.layers,
                             .width = model.width,
                             .ffn_width = model.ffn_width,
                             .context = model.context,
                             .cost = point.cost,
                             .steps = plan_batch(point.config, 1).steps,
                             .batch_tokens = point.config.train.batch_tokens});
  }
  return record;
}

std::string record_json(const SweepRecord& record) {
  Json document = {
      {"sweep", record.name},   {"file", record.file},
      {"base", record.base},    {"scale", record.scale == SweepScale::kTiny ? "tiny" : "full"},
      {"sets", record.sets},    {"vocabulary", record.vocabulary},
      {"points", Json::array()}};
  if (record.stop_early) document["stop_early"] = json_of(*record.stop_early);
  for (size_t p = 0; p < record.points.size(); ++p) {
    Json entry = json_of(record.points[p]);
    entry["runs"] = Json::array();
    for (const SweepRun& run : record.runs) {
      if (run.point == p) entry["runs"].push_back({{"id", run.id}, {"seed", run.seed}});
    }
    document["points"].push_back(std::move(entry));
  }
  return document.dump(2) + "\n";
}

SweepRecord read_record(const std::string& folder) {
  const std::string path = folder + "/sweep.json";
  std::ifstream in(path);
  if (!in) {
    throw data_error(path, ": no such file; expected the directory of a sweep that was submitted");
  }
  try {
    return record_from(Json::parse(in));
  } catch (const Json::exception& failure) {
    throw data_error(path, " is no record of a sweep: ", failure.what(),
                     "; remove it and submit the sweep again, which writes it anew");
  }
}

}  // namespace anabranch
