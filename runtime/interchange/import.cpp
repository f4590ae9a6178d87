#include "runtime/interchange/import.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "core/base/read_file.h"
#include "core/nn/init.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/config/nearest.h"
#include "runtime/interchange/hf_gpt2.h"
#include "runtime/interchange/json_file.h"
#include "runtime/interchange/staged_folder.h"
#include "runtime/interchange/weight_files.h"
#include "runtime/loaded_model.h"
#include "runtime/memory_need.h"
#include "runtime/models/registry.h"
#include "runtime/training_state.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

// What a folder says of its model is data, also where we read it as a configuration.
template <class F>
auto as_data(const std::string& place, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.fault() == Fault::kConfig) throw data_error(place, ": ", error.what());
    throw;
  }
}

// What a folder says of its model.
struct Origin {
  bool generic = false;
  Config config;
  std::optional<HfGpt2Config> hf;
};

Origin origin_of(const ImportOptions& options) {
  const std::string path = (options.from / "config.json").string();
  const auto document = nlohmann::json::parse(read_json_object(path));
  const auto mark = document.find("anabranch");
  Origin origin;
  origin.generic = mark != document.end() && mark->is_object() && mark->contains("format") &&
                   mark->at("format") == "generic";
  if (origin.generic) {
    const std::string yaml = (options.from / "config.yaml").string();
    origin.config = as_data(yaml, [&] { return parse_config(read_file(yaml), yaml); });
  } else {
    origin.hf = read_hf_gpt2_config(path);
    origin.config.model = origin.hf->model;
  }
  origin.config.run.dir = options.out.string();
  origin.config.run.name = fs::absolute(options.out / "").parent_path().filename().string();
  fill_derived(origin.config);
  return origin;
}

Tokenizer tokenizer_of(const ImportOptions& options) {
  if (!options.tokenizer.empty()) return Tokenizer::load(options.tokenizer.string());
  const fs::path one = options.from / kRunTokenizer;
  const fs::path merges = options.from / "merges.txt", ids = options.from / "vocab.json";
  if (fs::exists(one)) return Tokenizer::load(one.string());
  if (fs::exists(merges) && fs::exists(ids)) {
    return Tokenizer::from_gpt2(merges.string(), ids.string());
  }
  throw data_error(options.from.string(), " holds neither ", kRunTokenizer,
                   " nor vocab.json and merges.txt: give --tokenizer FILE");
}

// "a, b, c and 5 more".
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() < kShown) shown.push_back(excerpt(name, kQuotedBytes));
  }
  const size_t rest = names.size() - shown.size();
  return word_list(shown) + (rest > 0 ? join(" and ", rest, " more") : "");
}

// A tensor to fill, and where it comes from.
struct Wanted {
  Param* param = nullptr;  // null: a buffer
  Tensor buffer;
  Shape shape;  // ours
  std::string name;
  bool transposed = false;
  WeightFiles::Place place{};
};

class Importer {
 public:
  Importer(const ImportOptions& options, ImportReport& report)
      : options_(options),
        report_(report),
        origin_(origin_of(options)),
        tokenizer_(tokenizer_of(options)),
        vocabulary_(static_cast<int64_t>(tokenizer_.vocab_size())),
        files_(options.from) {
    report_.format = origin_.generic ? "generic" : "hf";
  }

  void run() {
    check_vocabulary();
    model_ = as_data(folder(), [&] { return make_model(origin_.config, vocabulary_); });
    list();
    match();
    MemoryNeed need = weights_memory(*model_);
    need.save = need.weights;
    require_memory(need);
    for (Wanted& wanted : wanted_) fill(wanted);
    check_head();
    write();
  }

 private:
  [[nodiscard]] std::string folder() const { return options_.from.string(); }

  // A table may have more rows than there are tokens: its width was rounded up for speed.
  void check_vocabulary() {
    if (origin_.generic) return;
    report_.padding = origin_.hf->vocabulary - vocabulary_;
    if (report_.padding < 0) {
      throw data_error(folder(), "/config.json: vocab_size is ", origin_.hf->vocabulary,
                       ", and the tokenizer has ", vocabulary_, " tokens: it is another model's");
    }
  }

  void list() {
    model_->visit([&](Param& w) {
      const HfName hf = origin_.generic ? HfName{w.name} : hf_gpt2_name(w);
      wanted_.push_back({&w, {}, w.shape, hf.name, hf.transposed});
      report_.parameters += w.shape.count();
    });
    model_->visit_buffers([&](Buffer& b) {
      wanted_.push_back({nullptr, b.value, b.value.shape(), b.name});
    });
    report_.tensors = std::ssize(wanted_);
  }

  // The shape that a tensor has in the file.
  [[nodiscard]] Shape shape_in_file(const Wanted& w) const {
    if (w.transposed) return {w.shape[1], w.shape[0]};
    if (is_table(w)) return {w.shape[0] + report_.padding, w.shape[1]};
    return w.shape;
  }

  [[nodiscard]] static bool is_table(const Wanted& w) { return w.name == kTable; }

  // By full names, each once.
  [[nodiscard]] std::map<std::string, WeightFiles::Place> tensors_by_name() const {
    if (origin_.generic) return files_.tensors();
    std::map<std::string, WeightFiles::Place> tensors;
    for (const auto& [name, place] : files_.tensors()) {
      const std::string full = hf_gpt2_full_name(name);
      if (!tensors.emplace(full, place).second) {
        throw data_error(place.file->path(), " holds ", full, " and the same without its prefix");
      }
    }
    return tensors;
  }

  // Finds every tensor and looks at its shape. Throws unless files and model have the same ones.
  void match() {
    std::map<std::string, WeightFiles::Place> tensors = tensors_by_name();
    std::vector<std::string> missing, left;
    for (Wanted& w : wanted_) {
      const auto found = tensors.find(w.name);
      if (found == tensors.end()) {
        missing.push_back(w.name);
        continue;
      }
      w.place = found->second;
      check_shape(w);
      tensors.erase(found);
    }
    if (!missing.empty()) throw data_error(folder(), " lacks the tensors ", some_of(missing));
    for (const auto& [name, place] : tensors) {
      if (!origin_.generic && name == kHead) {
        head_ = place;
      } else if (!origin_.generic && is_hf_gpt2_mask(name, origin_.config.model.layers)) {
        report_.ignored.push_back(place.entry->name);
      } else {
        left.push_back(place.entry->name);
      }
    }
    if (!left.empty()) {
      throw data_error(folder(), " holds ", some_of(left), ", which the model of its ",
                       origin_.generic ? "config.yaml" : "config.json", " has not");
    }
  }

  void check_shape(const Wanted& w) const {
    const Shape expected = shape_in_file(w), &found = w.place.entry->shape;
    if (found == expected) return;
    throw data_error(w.place.file->path(), ": tensor ", w.place.entry->name, " is ", found,
                     "; expected ", expected, w.transposed ? ", input by output" : "");
  }

  [[nodiscard]] Tensor read(const WeightFiles::Place& place, DType type) const {
    Tensor value(place.entry->shape, type);
    place.file->read(*place.entry, value);
    return value;
  }

  void fill(Wanted& w) {
    if (w.param == nullptr) {
      w.place.file->read(*w.place.entry, w.buffer);
      return;
    }
    allocate(*w.param, master_type(origin_.config.train.precision));
    Tensor& master = w.param->master;
    if (w.transposed) {
      master.copy_from(transposed(read(w.place, master.dtype())));
    } else if (w.place.entry->shape == w.shape) {
      w.place.file->read(*w.place.entry, master);
    } else {  // a padded table
      std::memcpy(master.raw(), read(w.place, master.dtype()).raw(), master.bytes());
    }
  }

  // Our head is the table: one of its own must be equal to it.
  void check_head() const {
    const auto table = std::ranges::find(wanted_, std::string(kTable), &Wanted::name);
    if (!head_) {
      if (origin_.generic || origin_.hf->tied) return;
      throw data_error(folder(), "/config.json: tie_word_embeddings is false, and ", kHead,
                       " is missing");
    }
    const DType type = table->param->master.dtype();
    const bool alike = head_->entry->shape == table->place.entry->shape;
    if (alike) {
      const Tensor head = read(*head_, type), rows = read(table->place, type);
      if (std::memcmp(head.raw(), rows.raw(), head.bytes()) == 0) return;
    }
    throw data_error(head_->file->path(), ": ", kHead, " is not ", kTable,
                     ": models whose head is not their table are not read");
  }

  void write() {
    StagedFolder run(options_.out);
    write_atomically((run.path() / "config.yaml").string(), dump_config(origin_.config));
    tokenizer_.save((run.path() / kRunTokenizer).string());
    Manifest header;
    header.facts = {{"config", dump_config(origin_.config)},
                    {Manifest::kHolds, Manifest::kWeights},
                    {"origin", fs::absolute(options_.from).string()}};
    header.counters = {{"tokens", {0}}, {"updates", {0, 0}}, {"guard", {0, 0}}};
    CheckpointSaver saver(CheckpointDirectory(run.path() / "checkpoints"), 0, 1, {}, nullptr);
    saver.start(header, weights_of(*model_), {"imported"});
    saver.join();
    if (saver.phase() == CheckpointSaver::Phase::kWritten) saver.publish();
    saver.join();
    if (saver.phase() != CheckpointSaver::Phase::kIdle) throw io_error(saver.error());
    run.publish();
  }

  static constexpr const char* kTable = "transformer.wte.weight";
  static constexpr const char* kHead = "lm_head.weight";

  const ImportOptions& options_;
  ImportReport& report_;
  Origin origin_;
  Tokenizer tokenizer_;
  int64_t vocabulary_;
  WeightFiles files_;
  std::unique_ptr<Model> model_;
  std::vector<Wanted> wanted_;
  std::optional<WeightFiles::Place> head_;
};

void refuse_occupied(const fs::path& out) {
  if (!fs::exists(out)) return;
  if (fs::is_directory(out) && fs::is_empty(out)) return;
  throw usage_error(out.string(), " is there already; import to a run directory of its own");
}

}  // namespace

ImportReport import_run(const ImportOptions& options) {
  if (!fs::is_directory(options.from)) {
    throw data_error(options.from.string(), " is no folder of a model");
  }
  refuse_occupied(options.out);
  ImportReport report;
  Importer(options, report).run();
  return report;
}

}  // namespace anabranch
