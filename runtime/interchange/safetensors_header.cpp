#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "runtime/interchange/safetensors.h"

namespace anabranch {
namespace {

constexpr std::array<std::pair<std::string_view, int64_t>, 15> kTypes = {{{"BOOL", 1},
                                                                          {"U8", 1},
                                                                          {"I8", 1},
                                                                          {"F8_E5M2", 1},
                                                                          {"F8_E4M3", 1},
                                                                          {"I16", 2},
                                                                          {"U16", 2},
                                                                          {"F16", 2},
                                                                          {"BF16", 2},
                                                                          {"I32", 4},
                                                                          {"U32", 4},
                                                                          {"F32", 4},
                                                                          {"I64", 8},
                                                                          {"U64", 8},
                                                                          {"F64", 8}}};

// Bytes of an element; 0 if there is no such type.
int64_t width_of(std::string_view type) {
  const auto* const found = std::ranges::find(kTypes, type, &decltype(kTypes)::value_type::first);
  return found == kTypes.end() ? 0 : found->second;
}

// Takes what the format allows, event by event, and nothing else: no tree is built of what others
// wrote, nesting ends at the first bracket too many, and names that come twice are seen.
class HeaderParser final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderParser(const std::string& source) : source_(source) {}

  SafetensorsHeader header;

  bool null() override { return unexpected("null"); }

  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }

  bool number_integer(number_integer_t value) override { return unexpected(join(value)); }

  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return unexpected(excerpt(text, kQuotedBytes));
  }

  bool binary(binary_t& /*value*/) override { return unexpected("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    const bool list = place_ == Place::kShapeList || place_ == Place::kOffsetList;
    if (!list || !std::in_range<int64_t>(value)) return unexpected(join(value));
    std::vector<int64_t>& numbers = place_ == Place::kShapeList ? shape_ : offsets_;
    if (std::ssize(numbers) == Shape::kMaxRank) {
      fail("more than ", Shape::kMaxRank, " numbers in a row");
    }
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kText) {
      header.metadata[key_] = std::move(value);
      place_ = Place::kMetadata;
    } else if (place_ == Place::kType) {
      type_ = std::move(value);
      place_ = Place::kTensor;
    } else {
      return unexpected(quote(value));
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    switch (place_) {
      case Place::kBegin:
        place_ = Place::kNames;
        return true;
      case Place::kEntry:
        place_ = name_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
        type_.clear();
        shape_.clear();
        offsets_.clear();
        fields_.clear();
        return true;
      default:
        return unexpected("{");
    }
  }

  bool key(string_t& text) override {
    switch (place_) {
      case Place::kNames:
        name_ = std::move(text);
        if (!names_.insert(name_).second) fail("comes twice");
        place_ = Place::kEntry;
        return true;
      case Place::kMetadata:
        key_ = std::move(text);
        place_ = Place::kText;
        return true;
      default:
        begin_field(text);
        return true;
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      add_entry();
    }
    place_ = place_ == Place::kNames ? Place::kEnd : Place::kNames;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return unexpected("[");
    place_ = place_ == Place::kShape ? Place::kShapeList : Place::kOffsetList;
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& failure) override {
    throw data_error(source_, ": the header is no JSON: ", excerpt(failure.what(), kReasonBytes));
  }

 private:
  enum class Place : uint8_t {
    kBegin,
    kNames,     // a tensor's name comes, or the end
    kEntry,     // what it stands for
    kMetadata,  // a key of "__metadata__", or its end
    kText,      // the string of that key
    kTensor,    // a field of a tensor, or its end
    kType,      // each field's value
    kShape,
    kOffsets,
    kShapeList,  // its numbers, or its end
    kOffsetList,
    kEnd
  };

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw data_error(source_, ": tensor ", quote(name_), ": ", parts...);
  }

  [[nodiscard]] bool unexpected(const std::string& what) const {
    if (place_ == Place::kBegin) throw data_error(source_, ": the header is no JSON object");
    fail("found ", what, ", where ", expected(), " belongs");
  }

  [[nodiscard]] const char* expected() const {
    switch (place_) {
      case Place::kEntry:
        return "an object";
      case Place::kText:
      case Place::kType:
        return "a string";
      case Place::kShape:
      case Place::kOffsets:
        return "a list";
      default:
        return "a whole number";
    }
  }

  void begin_field(const std::string& text) {
    if (!fields_.insert(text).second) fail(quote(text), " comes twice");
    if (text == "dtype") {
      place_ = Place::kType;
    } else if (text == "shape") {
      place_ = Place::kShape;
    } else if (text == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      fail("unknown field ", quote(text), "; known are dtype, shape, data_offsets");
    }
  }

  void add_entry() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) fail(field, " is missing");
    }
    const int64_t width = width_of(type_);
    if (width == 0) fail("unknown type ", quote(type_));
    const Shape shape(shape_.begin(), shape_.end());
    int64_t bytes = width;
    for (const int64_t extent : shape) {
      if (__builtin_mul_overflow(bytes, extent, &bytes)) {
        fail("shape ", shape, " is more than memory could hold");
      }
    }
    if (offsets_.size() != 2) fail("data_offsets are not two numbers");
    const int64_t begin = offsets_[0], end = offsets_[1];
    if (end < begin || end - begin != bytes) {
      fail(type_, shape, " is of ", bytes, " bytes, and data_offsets say ", begin, " to ", end);
    }
    header.entries.push_back({name_, type_, shape, begin, bytes});
  }

  const std::string& source_;
  Place place_ = Place::kBegin;
  std::set<std::string> names_, fields_;
  std::string name_, key_, type_;
  std::vector<int64_t> shape_, offsets_;
};

// Throws unless the tensors lie one behind the other and fill the data.
void check_layout(const std::vector<SafetensorsEntry>& entries, int64_t data_bytes,
                  const std::string& source) {
  int64_t end = 0;
  for (const SafetensorsEntry& e : entries) {
    if (e.offset != end) {
      throw data_error(source, ": tensor ", quote(e.name), " begins at byte ", e.offset,
                       " of the data, and ",
                       e.offset < end ? "overlaps the one before, which"
                                      : "leaves a gap behind the one before, which",
                       " ends at ", end);
    }
    end += e.bytes;
    if (end > data_bytes) {
      throw data_error(source, ": tensor ", quote(e.name), " ends at byte ", end,
                       " of the data, of which there are ", data_bytes,
                       ": the file is truncated; copy it again");
    }
  }
  if (end != data_bytes) {
    throw data_error(source, ": ", data_bytes - end, " bytes behind the last tensor are no one's");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& source) {
  // The library takes a zero byte for the end and would not see what follows.
  if (!text.starts_with('{') || text.find('\0') != std::string_view::npos) {
    throw data_error(source, ": the header is no JSON object");
  }
  HeaderParser parser(source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &parser);
  std::ranges::sort(parser.header.entries, {}, [](const SafetensorsEntry& e) {
    return std::tuple(e.offset, e.bytes, std::string_view(e.name));
  });
  check_layout(parser.header.entries, data_bytes, source);
  return std::move(parser.header);
}

}  // namespace anabranch
