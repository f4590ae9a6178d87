#include "runtime/checkpoint/manifest.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "runtime/checkpoint/state.h"

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
  const Shape& whole = e.part.whole;
  return {{"name", e.name},          {"shape", std::vector<int64_t>(whole.begin(), whole.end())},
          {"axis", e.part.axis},     {"begin", e.part.begin},
          {"length", e.part.extent}, {"from", e.from},
          {"count", e.count},        {"type", name_of(e.type)},
          {"crc32c", e.crc32c},      {"file", e.file}};
}

// Whether [begin, begin + length) are of [0, end).
bool within(int64_t begin, int64_t length, int64_t end) {
  return 0 <= begin && begin <= end && 0 <= length && length <= end - begin;
}

// Throws unless the slice lies in a tensor that memory could hold.
void check_place(const CheckpointEntry& e) {
  const Part& part = e.part;
  int64_t bytes = size_of(e.type);
  for (const int64_t extent : part.whole) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) {
      throw data_error(e.name, " of shape ", part.whole, " is no tensor");
    }
  }
  const int rank = part.whole.rank();
  if (part.axis < 0 || part.axis >= std::max(rank, 1)) {
    throw data_error(e.name, " of shape ", part.whole, " is cut along axis ", part.axis);
  }
  const int64_t length = rank > 0 ? part.whole[part.axis] : 1;
  if (!within(part.begin, part.extent, length) || (rank == 0 && part.extent != 1)) {
    throw data_error(e.name, " of shape ", part.whole, " has ", part.extent, " indices from ",
                     part.begin, " on of axis ", part.axis);
  }
  if (!within(e.from, e.count, part.count())) {
    throw data_error(e.name, " has ", e.count, " elements from ", e.from, " on of a part of ",
                     part.count());
  }
}

CheckpointEntry entry_of(const json& j) {
  CheckpointEntry e;
  e.name = j.at("name");
  std::vector<int64_t> shape;
  for (const json& extent : j.at("shape")) shape.push_back(whole<int64_t>(extent));
  e.part.whole = Shape(shape.begin(), shape.end());
  e.part.begin = whole<int64_t>(j.at("begin"));
  e.part.extent = whole<int64_t>(j.at("length"));
  e.type = type_named(j.at("type"));
  if (j.contains("axis")) {
    e.part.axis = whole<int>(j.at("axis"));
    e.from = whole<int64_t>(j.at("from"));
    e.count = whole<int64_t>(j.at("count"));
    check_place(e);
  } else {  // format 1
    check_place(e);
    e.count = e.part.count();
  }
  e.crc32c = whole<uint32_t>(j.at("crc32c"));
  e.file = j.at("file");
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

// A tensor that is cut more finely than this was not cut by us.
constexpr int64_t kMostRuns = int64_t{1} << 24;

// Throws unless the slices have every element of one tensor once.
void check_tensor(const std::string& name, const std::vector<const CheckpointEntry*>& slices) {
  const CheckpointEntry& first = *slices.front();
  int64_t count = 0;
  for (const CheckpointEntry* e : slices) {
    if (!(e->part.whole == first.part.whole) || e->type != first.type) {
      throw data_error("the slices of ", name, " disagree on its shape or type");
    }
    count += e->part.run_count(e->from, e->count);
    if (count > kMostRuns) throw data_error(name, " is cut into more than ", kMostRuns, " runs");
  }
  std::vector<Run> runs;
  for (const CheckpointEntry* e : slices) {
    const std::vector<Run> more = runs_of(e->part, e->from, e->count);
    runs.insert(runs.end(), more.begin(), more.end());
  }
  std::ranges::sort(runs, {}, &Run::there);
  const int64_t all = first.part.whole.count();
  int64_t covered = 0;
  for (const Run& run : runs) {
    if (run.there < covered) {
      throw data_error(name, " is stored twice at element ", run.there, " of ", all);
    }
    if (run.there > covered) break;
    covered += run.count;
  }
  if (covered != all) {
    throw data_error(name, " is not all stored: nothing has its element ", covered, " of ", all);
  }
}

}  // namespace

std::string entries_json(const std::vector<CheckpointEntry>& entries) {
  return array_of(entries).dump();
}

std::vector<CheckpointEntry> parse_entries(const std::string& text, const std::string& source) {
  return naming(source, [&] { return entries_of(json::parse(text)); });
}

bool Manifest::weights_only() const {
  const auto found = facts.find(kHolds);
  return found != facts.end() && found->second == kWeights;
}

void Manifest::check_coverage() const {
  std::map<std::string, std::vector<const CheckpointEntry*>> by_name;
  for (const CheckpointEntry& e : entries) by_name[e.name].push_back(&e);
  for (const auto& [name, slices] : by_name) check_tensor(name, slices);
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
    if (format < 1 || format > kFormat) {
      throw data_error("format ", format, "; this program reads formats up to ", kFormat);
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
