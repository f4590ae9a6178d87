#include "data/shard/build.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "data/shard/parts.h"

namespace anabranch {
namespace {

namespace fs = std::filesystem;

void check_names(const std::vector<SourceOptions>& sources) {
  if (sources.empty()) throw usage_error("no source of text is given");
  std::set<std::string> names;
  size_t weighted = 0;
  for (const SourceOptions& source : sources) {
    const bool plain =
        !source.name.empty() && std::all_of(source.name.begin(), source.name.end(), [](char c) {
          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '-' || c == '_';
        });
    if (!plain) {
      throw usage_error("source '", source.name, "': a name has letters, digits, - and _ only");
    }
    if (!names.insert(source.name).second) {
      throw usage_error("two sources are called '", source.name, "'");
    }
    if (!(source.weight >= 0)) {
      throw usage_error("source ", source.name, " has weight ", source.weight, "; expected >= 0");
    }
    if (source.weight > 0) ++weighted;
  }
  if (weighted != 0 && weighted != sources.size()) {
    throw usage_error(weighted, " of ", sources.size(), " sources have a weight; give all or none");
  }
}

void check_options(const Tokenizer& tokenizer, const BuildOptions& options) {
  check_names(options.sources);
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    throw usage_error("validation fraction ", options.validation_fraction, "; expected [0, 1)");
  }
  if (options.shard_tokens < 1) {
    throw usage_error("shards of ", options.shard_tokens, " tokens; expected at least 1");
  }
  if (options.workers < 0) throw usage_error(options.workers, " workers; expected 0 or more");
  AB_CHECK(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks, "rank ",
           options.rank, " of ", options.ranks);
  AB_CHECK(options.ranks == 1 || options.barrier, "several ranks need a barrier");
  if (options.begin_documents && !tokenizer.bos_id()) {
    throw data_error("tokenizer ", tokenizer.name(), " has no token to begin documents with; ",
                     "expected <|endoftext|>, <|bos|> or another usual one among its specials, or ",
                     "documents without one");
  }
}

// Looked at by every rank before any rank changes anything.
void check_folder(const BuildOptions& options) {
  if (fs::exists(fs::path(options.out) / "dataset.json")) {
    throw usage_error(options.out,
                      " holds a data set already; remove it, or choose another folder");
  }
}

void make_folders(const BuildOptions& options, const std::vector<SourceRecord>& records) {
  try {
    fs::remove_all(PartNames{options.out}.parts());  // of a build that was killed
    fs::create_directories(PartNames{options.out}.parts());
    for (const SourceRecord& record : records) {
      fs::create_directories(fs::path(options.out) / record.folder);
    }
  } catch (const fs::filesystem_error& error) {
    throw io_error("cannot make the folder for the shards: ", error.what());
  }
}

std::vector<SourceRecord> make_records(const std::vector<SourceOptions>& sources) {
  std::vector<SourceRecord> records;
  for (const SourceOptions& source : sources) {
    SourceRecord& record = records.emplace_back();
    record.name = source.name;
    record.folder = sources.size() == 1 ? "." : "sources/" + source.name;
    record.weight = source.weight;
  }
  return records;
}

TokenizerFacts facts_of(const Tokenizer& tokenizer) {
  TokenizerFacts facts{tokenizer.name(), tokenizer.sha256(),
                       static_cast<int64_t>(tokenizer.vocab_size())};
  if (tokenizer.bos_id()) facts.bos_id = *tokenizer.bos_id();
  if (tokenizer.eos_id()) facts.eos_id = *tokenizer.eos_id();
  return facts;
}

}  // namespace

BuildReport build_shards(const Tokenizer& tokenizer, const BuildOptions& options) {
  const auto begun = std::chrono::steady_clock::now();
  const auto meet = [&] {
    if (options.ranks > 1) options.barrier();
  };
  check_options(tokenizer, options);
  check_folder(options);
  std::vector<std::vector<InputText>> files;
  for (const SourceOptions& source : options.sources) files.push_back(list_inputs(source.inputs));
  std::vector<SourceRecord> records = make_records(options.sources);
  meet();
  if (options.rank == 0) make_folders(options, records);
  meet();
  write_parts(tokenizer, options, files);
  meet();
  const PartNames names{options.out};
  const TokenizerFacts facts = facts_of(tokenizer);
  BuildReport report;
  merge_parts(facts, options, read_part_index(names, options.ranks), records, report);
  meet();
  if (options.rank == 0) {
    fs::remove_all(names.parts());
    tokenizer.save((fs::path(options.out) / "tokenizer.json").string());
    write_dataset_json(options.out, facts, records);
  }
  meet();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return report;
}

}  // namespace anabranch
