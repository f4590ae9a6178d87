#include "runtime/checkpoint/manifest.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace anabranch {
namespace {

using nlohmann::json;

constexpr DType kStoredTypes[] = {DType::kF32, DType::kF64, DType::kI64};

DType type_named(const std::string& name) {
  for (const DType type : kStoredTypes) {
    if (name == name_of(type)) return type;
  }
  throw data_error("unknown element type '", name, "'");
}

// A whole number that fits T; the library's own conversion takes anything.
template <class T>
T whole(const json& j) {
  if (j.is_number_unsigned()) {
    if (const auto value = j.get<uint64_t>(); std::in_range<T>(value)) return static_cast<T>(value);
  } else if (j.is_number_integer()) {
    if (const auto value = j.get<int64_t>(); std::in_range<T>(value)) return static_cast<T>(value);
  }
  throw data_error("found ", j.dump(), " where a whole number belongs");
}

json to_json(const CheckpointEntry& e) {
  return {{"name", e.name},
          {"shape", std::vector<int64_t>(e.global_shape.begin(), e.global_shape.end())},
          {"begin", e.begin},
          {"length", e.length},
          {"type", name_of(e.type)},
          {"crc32c", e.crc32c},
          {"file", e.file}};
}

CheckpointEntry entry_of(const json& j) {
  std::vector<int64_t> shape;
  for (const json& extent : j.at("shape")) shape.push_back(whole<int64_t>(extent));
  CheckpointEntry e{j.at("name"),
                    Shape(shape.begin(), shape.end()),
                    whole<int64_t>(j.at("begin")),
                    whole<int64_t>(j.at("length")),
                    type_named(j.at("type")),
                    whole<uint32_t>(j.at("crc32c")),
                    j.at("file")};
  // The file is opened beside the manifest: a name must not lead elsewhere.
  if (e.file.empty() || e.file.find('/') != std::string::npos || e.file.front() == '.') {
    throw data_error("'", e.file, "' is not a plain file name");
  }
  return e;
}

json array_of(const std::vector<CheckpointEntry>& entries) {
  json all = json::array();
  for (const CheckpointEntry& e : entries) all.push_back(to_json(e));
  return all;
}

std::vector<CheckpointEntry> entries_of(const json& all) {
  std::vector<CheckpointEntry> entries;
  for (const json& j : all) entries.push_back(entry_of(j));
  return entries;
}

// Runs a parse and names the file in whatever it throws.
template <class F>
auto naming(const std::string& source, F&& parse) {
  try {
    return parse();
  } catch (const json::exception& failure) {
    throw data_error(source, ": ", failure.what());
  } catch (const Error& failure) {
    throw data_error(source, ": ", failure.what());
  }
}

// The document's checksum covers everything but itself.
constexpr const char* kChecksumKey = "manifest_crc32c";

uint32_t checksum(const json& document) {
  const std::string text = document.dump();
  return crc32c(text.data(), text.size());
}

}  // namespace

std::string entries_json(const std::vector<CheckpointEntry>& entries) {
  return array_of(entries).dump();
}

std::vector<CheckpointEntry> parse_entries(const std::string& text, const std::string& source) {
  return naming(source, [&] { return entries_of(json::parse(text)); });
}

void Manifest::check_coverage() const {
  std::map<std::string, std::vector<const CheckpointEntry*>> by_name;
  for (const CheckpointEntry& e : entries) by_name[e.name].push_back(&e);
  for (auto& [name, slices] : by_name) {
    std::ranges::sort(slices, {}, [](const CheckpointEntry* e) { return e->begin; });
    const Shape& whole = slices.front()->global_shape;
    const int64_t rows = whole.rank() == 0 ? 1 : whole[0];
    int64_t covered = 0;
    for (const CheckpointEntry* e : slices) {
      if (!(e->global_shape == whole) || e->type != slices.front()->type) {
        throw data_error("the slices of ", name, " disagree on its shape or type");
      }
      if (e->begin != covered || e->length < 0) {
        throw data_error(name, " is stored ", e->begin < covered ? "twice" : "with a gap",
                         " at row ", std::min(e->begin, covered), " of ", rows);
      }
      if (e->length > rows - covered) {
        throw data_error(name, " has ", e->length, " rows from row ", covered, " on, of ", rows);
      }
      covered += e->length;
    }
    if (covered != rows) throw data_error(name, " ends at row ", covered, " of ", rows);
  }
}

std::string Manifest::json() const {
  ::nlohmann::json document = {
      {"format", kFormat},    {"step", step},   {"next_sample", next_sample},
      {"counters", counters}, {"facts", facts}, {"entries", array_of(entries)}};
  document[kChecksumKey] = checksum(document);
  return document.dump(1) + "\n";
}

Manifest Manifest::parse(const std::string& text, const std::string& source) {
  return naming(source, [&] {
    ::nlohmann::json document = ::nlohmann::json::parse(text);
    const int format = whole<int>(document.at("format"));
    if (format != kFormat) {
      throw data_error("format ", format, "; this program reads format ", kFormat);
    }
    const auto stored = whole<uint32_t>(document.at(kChecksumKey));
    document.erase(kChecksumKey);
    if (checksum(document) != stored) throw data_error("the checksum does not match the content");
    Manifest m;
    m.step = whole<int64_t>(document.at("step"));
    m.next_sample = whole<int64_t>(document.at("next_sample"));
    m.counters = document.at("counters").get<decltype(m.counters)>();
    m.facts = document.at("facts").get<decltype(m.facts)>();
    m.entries = entries_of(document.at("entries"));
    m.check_coverage();
    return m;
  });
}

}  // namespace anabranch
