#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "core/base/read_file.h"
#include "data/text/documents.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/trainer.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/rank_process.h"
#include "launch/settings.h"
#include "launch/text_options.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

// The documents of several files, one after another.
class Reader {
 public:
  Reader(std::vector<InputText> files, const TextFormat& format)
      : files_(std::move(files)), format_(format) {
    for (const InputText& file : files_) total_ += static_cast<double>(file.bytes);
  }

  bool next(std::string& document) {
    while (at_ < files_.size()) {
      if (source_ == nullptr) source_ = open_documents(files_[at_].path, format_);
      if (source_->next(document)) return true;
      before_ += static_cast<double>(files_[at_].bytes);
      source_.reset();
      ++at_;
    }
    return false;
  }

  [[nodiscard]] double read() const {
    return before_ + (source_ != nullptr ? static_cast<double>(source_->bytes_read()) : 0);
  }

  [[nodiscard]] double total() const { return total_; }

 private:
  std::vector<InputText> files_;
  TextFormat format_;
  std::unique_ptr<DocumentSource> source_;
  size_t at_ = 0;
  double before_ = 0, total_ = 0;
};

std::string read_all(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  return read_file(path);
}

struct TrainWish {
  TrainOptions options;
  std::string out, name;
  std::vector<std::string> inputs;
  bool json = false;
};

void make_folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code failure;
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  if (failure) throw io_error("cannot make ", folder.string(), ": ", failure.message());
}

void train(const TrainWish& wish, const TextFormat& format) {
  const std::vector<InputText> inputs = list_inputs(wish.inputs);
  if (std::ranges::find(inputs, wish.out, &InputText::path) != inputs.end()) {
    throw usage_error("--out ", wish.out, " is one of the texts; give another name");
  }
  make_folder_of(wish.out);  // before the long work, not after
  Reader reader(inputs, format);
  Progress bar("counting", reader.total(), Progress::Unit::kBytes);
  bool merging = false;
  TrainProgress last;
  TrainOptions options = wish.options;
  options.progress = [&](const TrainProgress& now) {
    last = now;
    if (now.all_merges == 0 || now.merges == 0) {
      return bar.update(reader.read(), count_text(static_cast<double>(now.documents), "document"));
    }
    if (!merging) {
      bar.restart("merging", static_cast<double>(now.all_merges), Progress::Unit::kCount);
      merging = true;
    }
    bar.update(static_cast<double>(now.merges));
  };
  const Vocabulary vocabulary =
      train_bpe(options, [&](std::string& document) { return reader.next(document); });
  bar.finish();

  const std::string name =
      wish.name.empty() ? std::filesystem::path(wish.out).stem().string() : wish.name;
  const Tokenizer tokenizer(name, vocabulary, options.pattern);
  tokenizer.save(wish.out);
  if (wish.json) {
    const nlohmann::ordered_json report{{"path", wish.out},
                                        {"vocab_size", tokenizer.vocab_size()},
                                        {"documents", last.documents},
                                        {"bytes", last.bytes},
                                        {"sha256", tokenizer.sha256()}};
    std::cout << report.dump() << "\n";
    return;
  }
  std::cout << wish.out << ": " << tokenizer.vocab_size() << " entries from "
            << bytes_text(static_cast<double>(last.bytes)) << " in "
            << counted(static_cast<int64_t>(last.documents), "document") << "\n";
}

void add_train(CLI::App& parent) {
  auto wish = std::make_shared<TrainWish>();
  TrainOptions& options = wish->options;
  CLI::App* verb = parent.add_subcommand("train", "learns a vocabulary from text files");
  add_settings(*verb, "tokenizer");
  verb->add_option("FILES", wish->inputs, "files, folders and patterns")->required();
  verb->add_option("--out", wish->out, "tokenizer.json to write")->required();
  verb->add_option("--name", wish->name, "its name; default: the file's");
  add_whole(*verb, "--vocab", options.vocab_size, {256, 1 << 24},
            "entries: 256 bytes, merges, special tokens");
  add_word<SplitPattern>(*verb, "--pattern", options.pattern,
                         {{"gpt2", SplitPattern::kGpt2}, {"gpt4", SplitPattern::kGpt4}},
                         "how text is cut");
  auto specials = std::make_shared<std::vector<std::string>>();
  verb->add_option("--special", *specials, "a special token; repeat for more (<|bos|>)")
      ->allow_extra_args(false);
  add_whole(*verb, "--max-characters", options.total_characters, {},
            "stop counting there; 0: never");
  add_whole(*verb, "--document-characters", options.document_characters, {},
            "cut documents to so many; 0: whole");
  add_whole(*verb, "--min-count", options.min_count, {1}, "rarer pairs are not merged");
  add_whole(*verb, "--threads", options.threads, {0, 1024}, "0: one for each processor");
  verb->add_flag("--json", wish->json, "machine-readable report");
  auto format = add_text_options(*verb);
  verb->callback([wish, specials, format] {
    if (!specials->empty()) wish->options.specials = *specials;
    run_alone([&] { train(*wish, *format); });
  });
}

struct CodeWish {
  std::string tokenizer, file = "-", text;
  std::vector<std::string> ids;
  bool json = false, count = false;
};

void encode(const CodeWish& wish, bool has_text) {
  const Tokenizer tokenizer = Tokenizer::load(wish.tokenizer);
  std::vector<TokenId> ids;
  const std::string text = has_text ? wish.text : read_all(wish.file);
  tokenizer.encode_ordinary(text, ids);
  if (wish.count) {
    std::cout << ids.size() << "\n";
  } else if (wish.json) {
    std::cout << nlohmann::json(ids).dump() << "\n";
  } else {
    for (size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : " ") << ids[i];
    std::cout << "\n";
  }
}

void add_encode(CLI::App& parent) {
  auto wish = std::make_shared<CodeWish>();
  CLI::App* verb = parent.add_subcommand("encode", "prints the ids of a text");
  verb->add_option("TOKENIZER", wish->tokenizer, "tokenizer.json")->required();
  verb->add_option("FILE", wish->file, "text file; default: the standard input");
  CLI::Option* text = verb->add_option("--text", wish->text, "the text itself");
  verb->add_flag("--json", wish->json, "as a JSON list");
  verb->add_flag("--count", wish->count, "only how many");
  verb->callback([wish, text] { run_alone([&] { encode(*wish, text->count() > 0); }); });
}

// Whether `word` is all of a token id; the tokenizer checks that it has it.
bool read_id(const std::string& word, TokenId& id) {
  const char* end = word.data() + word.size();
  const auto [stopped, failure] = std::from_chars(word.data(), end, id);
  return failure == std::errc() && stopped == end;
}

void decode(const CodeWish& wish) {
  const Tokenizer tokenizer = Tokenizer::load(wish.tokenizer);
  std::vector<TokenId> ids;
  for (const std::string& word : wish.ids) {
    if (!read_id(word, ids.emplace_back())) {
      throw usage_error("IDS: found ", quote(word), "; expected token ids, whole numbers from 0");
    }
  }
  if (ids.empty()) {
    for (std::string word; std::cin >> word;) {
      if (!read_id(word, ids.emplace_back())) {
        throw data_error("standard input: found ", quote(word),
                         "; expected token ids, whole numbers from 0");
      }
    }
  }
  std::cout << tokenizer.decode(ids);
}

void add_decode(CLI::App& parent) {
  auto wish = std::make_shared<CodeWish>();
  CLI::App* verb = parent.add_subcommand("decode", "prints the text of ids, byte for byte");
  verb->add_option("TOKENIZER", wish->tokenizer, "tokenizer.json")->required();
  verb->add_option("IDS", wish->ids, "token ids; default: from the standard input");
  verb->callback([wish] { run_alone([&] { decode(*wish); }); });
}

struct FilesWish {
  std::string json, merges, ids;
};

void import(const std::string& from, const FilesWish& wish) {
  if (from.empty() && wish.merges.empty()) {
    throw usage_error("tokenizer import: give --json, or --merges and --ids");
  }
  const Tokenizer tokenizer =
      from.empty() ? Tokenizer::from_gpt2(wish.merges, wish.ids) : Tokenizer::load(from);
  tokenizer.save(wish.json);
  std::cout << wish.json << ": " << tokenizer.vocab_size() << " entries\n";
}

void add_import(CLI::App& parent) {
  auto wish = std::make_shared<FilesWish>();
  auto from = std::make_shared<std::string>();
  CLI::App* verb = parent.add_subcommand(
      "import", "checks a tokenizer of others and writes it as tokenizer.json");
  CLI::Option* file = verb->add_option("--json", *from, "a Hugging Face tokenizer.json");
  CLI::Option* merges = verb->add_option("--merges", wish->merges, "GPT-2's vocab.bpe");
  CLI::Option* ids = verb->add_option("--ids", wish->ids, "GPT-2's encoder.json");
  merges->needs(ids)->excludes(file);
  ids->needs(merges);
  verb->add_option("--out", wish->json, "tokenizer.json to write")->required();
  verb->callback([wish, from] { run_alone([&] { import(*from, *wish); }); });
}

void export_files(const FilesWish& wish) {
  const Tokenizer tokenizer = Tokenizer::load(wish.json);
  tokenizer.save_gpt2(wish.merges, wish.ids);
  std::cout << wish.merges << " and " << wish.ids << ": " << tokenizer.vocab_size()
            << " entries of " << wish.json << "\n";
}

void add_tokenizer_export(CLI::App& parent) {
  auto wish = std::make_shared<FilesWish>();
  CLI::App* verb = parent.add_subcommand("export", "writes GPT-2's vocab.bpe and encoder.json");
  verb->add_option("TOKENIZER", wish->json, "tokenizer.json")->required();
  verb->add_option("--merges", wish->merges, "vocab.bpe to write")->required();
  verb->add_option("--ids", wish->ids, "encoder.json to write")->required();
  verb->callback([wish] { run_alone([&] { export_files(*wish); }); });
}

}  // namespace

void add_tokenizer(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("tokenizer", "byte-level BPE: trains, encodes, converts");
  verb->require_subcommand(1);
  add_train(*verb);
  add_encode(*verb);
  add_decode(*verb);
  add_import(*verb);
  add_tokenizer_export(*verb);
}

}  // namespace anabranch
