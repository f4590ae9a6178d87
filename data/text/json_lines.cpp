#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/text/byte_stream.h"
#include "data/text/sources.h"

namespace anabranch {
namespace {

using Json = nlohmann::json;

// Picks one string out of an object while it is parsed, so that nothing else is kept.
class FieldPicker : public nlohmann::json_sax<Json> {
 public:
  FieldPicker(const std::string& field, std::string& to) : field_(field), to_(to) {}

  // What went wrong, or empty.
  [[nodiscard]] const std::string& fault() const { return fault_; }

  [[nodiscard]] bool found() const { return found_; }

  bool null() override { return value("null"); }

  bool boolean(bool /*value*/) override { return value("a boolean"); }

  bool number_integer(number_integer_t /*value*/) override { return value("a number"); }

  bool number_unsigned(number_unsigned_t /*value*/) override { return value("a number"); }

  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return value("a number");
  }

  bool string(string_t& text) override {
    if (!wanted()) return value("a string");
    to_ = std::move(text);
    here_ = false;
    found_ = true;
    return true;
  }

  bool binary(binary_t& /*value*/) override { return value("binary data"); }

  bool start_object(size_t /*size*/) override { return open("an object"); }

  bool end_object() override { return close(); }

  bool start_array(size_t /*size*/) override { return open("an array"); }

  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    here_ = depth_ == 1 && name == field_;
    if (here_ && found_) return fail("the object has '" + field_ + "' twice");
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    const std::string text = error.what();
    const size_t cut = text.find("syntax error");
    return fail(join("bad JSON at byte ", position, ": ",
                     cut == std::string::npos ? text : text.substr(cut)));
  }

 private:
  [[nodiscard]] bool wanted() const { return depth_ == 1 && here_; }

  bool value(const char* what) {
    if (depth_ == 0) return fail(join("the line is ", what, "; expected an object"));
    if (!wanted()) return true;
    return fail("'" + field_ + "' is " + what + "; expected a string");
  }

  bool open(const char* what) {
    if (depth_ == 0 && std::string_view(what) == "an object") {
      ++depth_;
      return true;
    }
    if (!value(what)) return false;
    ++depth_;
    return true;
  }

  bool close() {
    --depth_;
    return true;
  }

  bool fail(std::string why) {
    if (fault_.empty()) fault_ = std::move(why);
    return false;
  }

  const std::string& field_;
  std::string& to_;
  std::string fault_;
  int64_t depth_ = 0;
  bool here_ = false;  // the value of the field comes next
  bool found_ = false;
};

class JsonLines final : public DocumentSource {
 public:
  JsonLines(const std::string& path, const TextFormat& format)
      : reader_(path, format.max_document_bytes), field_(format.field) {}

  bool next(std::string& document) override {
    do {
      if (!reader_.next(line_)) return false;
    } while (line_.find_first_not_of(" \t\r") == std::string::npos);
    FieldPicker picker(field_, document);
    const bool parsed = Json::sax_parse(line_, &picker);
    if (!picker.fault().empty()) throw data_error(where(), ": ", picker.fault());
    if (!parsed) throw data_error(where(), ": bad JSON");
    if (!picker.found()) throw data_error(where(), ": the object has no field '", field_, "'");
    return true;
  }

  [[nodiscard]] int64_t bytes_read() const override { return reader_.stream().consumed(); }

  [[nodiscard]] std::string where() const override {
    return join(reader_.stream().path(), ":", reader_.number());
  }

 private:
  LineReader reader_;
  std::string field_, line_;
};

}  // namespace

std::unique_ptr<DocumentSource> open_json_lines(const std::string& path, const TextFormat& format) {
  return std::make_unique<JsonLines>(path, format);
}

}  // namespace anabranch
