#include "runtime/interchange/hf_gpt2.h"

#include <charconv>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/interchange/json_file.h"

namespace anabranch {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "transformer.";
constexpr int64_t kMostLayers = 4096, kLargestSize = int64_t{1} << 24;

const char* hf_type(DType type) {
  if (type == DType::kBF16) return "bfloat16";
  return type == DType::kF64 ? "float64" : "float32";
}

json token_id(std::optional<TokenId> id) { return id ? json(*id) : json(nullptr); }

json token_text(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? json(tokenizer.vocabulary().tokens[*id]) : json(nullptr);
}

// The keys of one config.json.
class Keys {
 public:
  Keys(const json& document, const std::string& source) : document_(document), source_(source) {}

  [[nodiscard]] const json& operator[](const char* key) const {
    static const json kAbsent;
    const auto found = document_.find(key);
    return found == document_.end() ? kAbsent : *found;
  }

  // A size; `otherwise` if it is absent or null, where that may be.
  [[nodiscard]] int64_t size(const char* key, int64_t most, int64_t otherwise = 0) const {
    const json& value = (*this)[key];
    if (value.is_null() && otherwise > 0) return otherwise;
    const bool whole = value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
                       value.get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!whole) refuse(key, join("a whole number from 1 to ", most));
    return static_cast<int64_t>(value.get<uint64_t>());
  }

  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    const json& value = (*this)[key];
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(key, "true or false");
    return value.get<bool>();
  }

  // Throws unless a switch that changes what is computed stands as ours does.
  void require(const char* key, bool ours) const {
    if (flag(key, ours) != ours) refuse(key, join(ours ? "true" : "false", ", as all we compute"));
  }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    const json& value = (*this)[key];
    std::string found = document_.contains(key) ? value.type_name() : "missing";
    if (value.is_primitive() && !value.is_null()) {
      found = excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace), kQuotedBytes);
    }
    throw data_error(source_, ": ", key, " is ", found, "; expected ", expected);
  }

 private:
  const json& document_;
  const std::string& source_;
};

GeluForm gelu_of(const Keys& keys) {
  const json& word = keys["activation_function"];
  if (word.is_null() || word == "gelu_new" || word == "gelu_pytorch_tanh") return GeluForm::kTanh;
  if (word != "gelu") keys.refuse("activation_function", "gelu_new, gelu_pytorch_tanh or gelu");
  return GeluForm::kErf;
}

double epsilon_of(const Keys& keys, double otherwise) {
  const json& value = keys["layer_norm_epsilon"];
  if (value.is_null()) return otherwise;
  if (!value.is_number() || value.get<double>() < 1e-12 || value.get<double>() > 1e-1) {
    keys.refuse("layer_norm_epsilon", "a number from 1e-12 to 0.1");
  }
  return value.get<double>();
}

}  // namespace

HfName hf_gpt2_name(const Param& w) {
  return {std::string(kPrefix) + w.name, w.shape.rank() == 2 && w.role != Role::kEmbedding};
}

std::string hf_gpt2_full_name(const std::string& name) {
  const bool full = name.starts_with(kPrefix) || name == "lm_head.weight";
  return full ? name : std::string(kPrefix) + name;
}

bool is_hf_gpt2_mask(const std::string& full_name, int64_t layers) {
  constexpr std::string_view kBlocks = "transformer.h.";
  if (!full_name.starts_with(kBlocks)) return false;
  int64_t layer = -1;
  const char* const end = full_name.data() + full_name.size();
  const auto [rest, failure] = std::from_chars(full_name.data() + kBlocks.size(), end, layer);
  const std::string_view part(rest, static_cast<size_t>(end - rest));
  return failure == std::errc() && layer >= 0 && layer < layers &&
         (part == ".attn.bias" || part == ".attn.masked_bias");
}

Tensor transposed(const Tensor& matrix) {
  const int64_t rows = matrix.dim(0), columns = matrix.dim(1);
  Tensor to({columns, rows}, matrix.dtype());
  dispatch(matrix.dtype(), [&]<class T>() {
    const T* from = matrix.data<T>();
    T* out = to.data<T>();
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) out[c * rows + r] = from[r * columns + c];
    }
  });
  return to;
}

std::string write_hf_gpt2_config(const Config& config, const Tokenizer& tokenizer, DType type,
                                 int64_t step) {
  const ModelConfig& m = config.model;
  const nlohmann::ordered_json document = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"n_layer", m.layers},
      {"n_head", m.heads},
      {"n_embd", m.width},
      {"n_inner", m.ffn_width},
      {"n_positions", m.context},
      {"vocab_size", tokenizer.vocab_size()},
      {"activation_function", m.gpt2.gelu == GeluForm::kTanh ? "gelu_new" : "gelu"},
      {"layer_norm_epsilon", m.gpt2.norm_eps},
      {"embd_pdrop", m.gpt2.dropout},
      {"resid_pdrop", m.gpt2.dropout},
      {"attn_pdrop", 0.0},
      {"tie_word_embeddings", true},
      {"bos_token_id", token_id(tokenizer.bos_id())},
      {"eos_token_id", token_id(tokenizer.eos_id())},
      {"torch_dtype", hf_type(type)},
      {"anabranch", {{"format", "hf"}, {"step", step}}}};
  return document.dump(2) + "\n";
}

HfGpt2Config read_hf_gpt2_config(const std::string& path) {
  const json document = json::parse(read_json_object(path));
  const Keys keys(document, path);
  if (keys["model_type"] != "gpt2") keys.refuse("model_type", "gpt2, or an export of ours");
  HfGpt2Config read;
  ModelConfig& m = read.model;
  m.type = ModelType::kGpt2;
  m.layers = keys.size("n_layer", kMostLayers);
  m.width = keys.size("n_embd", int64_t{1} << 20);
  m.heads = keys.size("n_head", int64_t{1} << 16);
  if (m.width % m.heads != 0) keys.refuse("n_head", join("a divisor of n_embd ", m.width));
  m.context = keys.size("n_positions", kLargestSize);
  m.ffn_width = keys.size("n_inner", kLargestSize, 4 * m.width);
  m.gpt2.gelu = gelu_of(keys);
  m.gpt2.norm_eps = epsilon_of(keys, m.gpt2.norm_eps);
  keys.require("scale_attn_weights", true);
  keys.require("scale_attn_by_inverse_layer_idx", false);
  keys.require("add_cross_attention", false);
  read.vocabulary = keys.size("vocab_size", int64_t{1} << 31);
  read.tied = keys.flag("tie_word_embeddings", true);
  return read;
}

std::string write_hf_tokenizer_config(const Config& config, const Tokenizer& tokenizer) {
  const nlohmann::ordered_json document = {
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"model_max_length", config.model.context},
      {"bos_token", token_text(tokenizer, tokenizer.bos_id())},
      {"eos_token", token_text(tokenizer, tokenizer.eos_id())}};
  return document.dump(2) + "\n";
}

}  // namespace anabranch
