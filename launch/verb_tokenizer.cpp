#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/text/documents.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/trainer.h"
#include "launch/program.h"
#include "launch/progress.h"
#include "launch/text_options.h"

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
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error(path, ": cannot be read");
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw io_error(path, ": reading failed");
  return bytes;
}

struct TrainWish {
  TrainOptions options;
  std::string out, name;
  std::vector<std::string> inputs;
  bool json = false;
};

void train(const TrainWish& wish, const TextFormat& format) {
  const std::vector<InputText> inputs = list_inputs(wish.inputs);
  if (std::ranges::find(inputs, wish.out, &InputText::path) != inputs.end()) {
    throw usage_error("--out ", wish.out, " is one of the texts; give another name");
  }
  Reader reader(inputs, format);
  Progress bar("counting", reader.total(), Progress::Unit::kBytes);
  bool merging = false;
  TrainProgress last;
  TrainOptions options = wish.options;
  options.progress = [&](const TrainProgress& now) {
    last = now;
    if (now.all_merges == 0 || now.merges == 0) {
      return bar.update(reader.read(),
                        count_text(static_cast<double>(now.documents)) + " documents");
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
            << bytes_text(static_cast<double>(last.bytes)) << " in " << last.documents
            << " documents\n";
}

void add_train(CLI::App& parent) {
  auto wish = std::make_shared<TrainWish>();
  TrainOptions& options = wish->options;
  CLI::App* verb = parent.add_subcommand("train", "learns a vocabulary from text files");
  verb->add_option("FILES", wish->inputs, "files, folders and patterns")->required();
  verb->add_option("--out", wish->out, "tokenizer.json to write")->required();
  verb->add_option("--name", wish->name, "its name; default: the file's");
  verb->add_option("--vocab", options.vocab_size, "entries: 256 bytes, merges, special tokens");
  const std::map<std::string, SplitPattern> patterns{{"gpt2", SplitPattern::kGpt2},
                                                     {"gpt4", SplitPattern::kGpt4}};
  verb->add_option("--pattern", options.pattern, "how text is cut: gpt2 or gpt4 (default)")
      ->transform(CLI::CheckedTransformer(patterns).description("{gpt2,gpt4}"))
      ->option_text("PATTERN");
  auto specials = std::make_shared<std::vector<std::string>>();
  verb->add_option("--special", *specials, "a special token; repeat for more (<|bos|>)")
      ->allow_extra_args(false);
  verb->add_option("--max-characters", options.total_characters, "stop counting there; 0: never");
  verb->add_option("--document-characters", options.document_characters,
                   "cut documents to so many; 0: whole");
  verb->add_option("--min-count", options.min_count, "rarer pairs are not merged");
  verb->add_option("--threads", options.threads, "0: one for each processor");
  verb->add_flag("--json", wish->json, "machine-readable report");
  auto format = add_text_options(*verb);
  verb->callback([wish, specials, format] {
    if (!specials->empty()) wish->options.specials = *specials;
    train(*wish, *format);
  });
}

struct CodeWish {
  std::string tokenizer, file = "-", text;
  std::vector<TokenId> ids;
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
  verb->callback([wish, text] { encode(*wish, text->count() > 0); });
}

void decode(const CodeWish& wish) {
  const Tokenizer tokenizer = Tokenizer::load(wish.tokenizer);
  std::vector<TokenId> ids = wish.ids;
  if (ids.empty()) {
    std::string word;
    while (std::cin >> word) {
      size_t used = 0;
      unsigned long id = 0;
      const bool digits = word.find_first_not_of("0123456789") == std::string::npos;
      if (digits && word.size() <= 10) id = std::stoul(word, &used);
      if (used != word.size() || id > UINT32_MAX) {
        throw data_error("standard input: \"", word.substr(0, 40), "\" is no token id");
      }
      ids.push_back(static_cast<TokenId>(id));
    }
  }
  std::cout << tokenizer.decode(ids);
}

void add_decode(CLI::App& parent) {
  auto wish = std::make_shared<CodeWish>();
  CLI::App* verb = parent.add_subcommand("decode", "prints the text of ids, byte for byte");
  verb->add_option("TOKENIZER", wish->tokenizer, "tokenizer.json")->required();
  verb->add_option("IDS", wish->ids, "token ids; default: from the standard input");
  verb->callback([wish] { decode(*wish); });
}

struct FilesWish {
  std::string json, merges, ids;
};

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
  verb->callback([wish, from] {
    if (from->empty() && wish->merges.empty()) {
      throw usage_error("tokenizer import: give --json, or --merges and --ids");
    }
    const Tokenizer tokenizer =
        from->empty() ? Tokenizer::from_gpt2(wish->merges, wish->ids) : Tokenizer::load(*from);
    tokenizer.save(wish->json);
    std::cout << wish->json << ": " << tokenizer.vocab_size() << " entries\n";
  });
}

void add_export(CLI::App& parent) {
  auto wish = std::make_shared<FilesWish>();
  CLI::App* verb = parent.add_subcommand("export", "writes GPT-2's vocab.bpe and encoder.json");
  verb->add_option("TOKENIZER", wish->json, "tokenizer.json")->required();
  verb->add_option("--merges", wish->merges, "vocab.bpe to write")->required();
  verb->add_option("--ids", wish->ids, "encoder.json to write")->required();
  verb->callback([wish] { Tokenizer::load(wish->json).save_gpt2(wish->merges, wish->ids); });
}

}  // namespace

void add_tokenizer(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("tokenizer", "byte-level BPE: trains, encodes, converts");
  verb->require_subcommand(1);
  add_train(*verb);
  add_encode(*verb);
  add_decode(*verb);
  add_import(*verb);
  add_export(*verb);
}

}  // namespace anabranch
