#include "runtime/config/yaml.h"

#include <algorithm>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "core/base/error.h"

namespace anabranch {

namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDepth = 16;
constexpr int kMaxNodes = 20000;

// Length of the UTF-8 sequence at `at`, or 0 if there is none.
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto tail = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80U) return 1;
  if (lead >= 0xC2U && lead <= 0xDFU) return tail(1) ? 2 : 0;
  if ((lead & 0xF0U) == 0xE0U) {
    const bool overlong = lead == 0xE0U && byte(1) < 0xA0U;
    const bool surrogate = lead == 0xEDU && byte(1) >= 0xA0U;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0U && lead <= 0xF4U) {
    const bool overlong = lead == 0xF0U && byte(1) < 0x90U;
    const bool beyond = lead == 0xF4U && byte(1) >= 0x90U;
    return tail(1) && tail(2) && tail(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

void check_text(const std::string& text, const std::string& name) {
  if (text.size() > kMaxBytes) {
    throw config_error(name, ": ", text.size(), " bytes; a configuration has at most ", kMaxBytes);
  }
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0) throw config_error(name, ":", line, ": not valid UTF-8");
    if (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') {
      throw config_error(name, ":", line, ": control character ", int{byte});
    }
    if (byte == '\n') ++line;
    i += length;
  }
}

// Builds the tree from the parser's events. Aliases are refused here, before anything grows.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string name) : name_(std::move(name)) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}

  void OnDocumentEnd() override {}

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    fail(mark, "aliases (*name) are not allowed: write the value out");
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check(mark, "", anchor);
    if (expects_key()) fail(mark, "a key is empty");
    add(mark, YamlNode::Kind::kNull);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check(mark, tag, anchor);
    if (expects_key()) return start_entry(mark, value);
    YamlNode& node = add(mark, YamlNode::Kind::kScalar);
    node.value = value;
    node.quoted = tag == "!";
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    check(mark, tag, anchor);
    open(mark, YamlNode::Kind::kList);
  }

  void OnSequenceEnd() override { open_.pop_back(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    check(mark, tag, anchor);
    open(mark, YamlNode::Kind::kMap);
  }

  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Level {
    std::vector<size_t> path;  // indices from the root: a node's address moves as lists grow
    bool has_key = false;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw config_error(name_, ":", mark.line + 1, ": ", what);
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) fail(mark, "anchors (&name) are not allowed: write the value out");
    if (!tag.empty() && tag != "?" && tag != "!") fail(mark, "tags (" + tag + ") are not allowed");
    if (++nodes_ > kMaxNodes) fail(mark, join("more than ", kMaxNodes, " values"));
  }

  YamlNode& at(const std::vector<size_t>& path) {
    YamlNode* node = &root_;
    for (const size_t index : path) node = &node->items[index];
    return *node;
  }

  bool expects_key() {
    return !open_.empty() && at(open_.back().path).kind == YamlNode::Kind::kMap &&
           !open_.back().has_key;
  }

  void start_entry(const YAML::Mark& mark, const std::string& key) {
    YamlNode& map = at(open_.back().path);
    if (const YamlNode* twin = map.find(key)) {
      fail(mark, "key \"" + key + "\" is given twice; first at " + twin->where);
    }
    map.items.emplace_back();
    map.items.back().key = key;
    map.items.back().where = join(name_, ":", mark.line + 1);
    open_.back().has_key = true;
  }

  YamlNode& add(const YAML::Mark& mark, YamlNode::Kind kind) {
    YamlNode* node = &root_;
    if (!open_.empty()) {
      YamlNode& parent = at(open_.back().path);
      if (parent.kind == YamlNode::Kind::kList) parent.items.emplace_back();
      node = &parent.items.back();
      open_.back().has_key = false;
    }
    node->kind = kind;
    if (node->where.empty()) node->where = join(name_, ":", mark.line + 1);
    return *node;
  }

  void open(const YAML::Mark& mark, YamlNode::Kind kind) {
    if (expects_key()) fail(mark, "a key must be a plain word");
    if (open_.size() >= kMaxDepth) fail(mark, join("more than ", kMaxDepth, " levels"));
    std::vector<size_t> path;
    if (!open_.empty()) path = open_.back().path;
    add(mark, kind);
    if (!open_.empty()) path.push_back(at(path).items.size() - 1);
    open_.push_back({std::move(path), false});
  }

  std::string name_;
  YamlNode root_;
  std::vector<Level> open_;
  int nodes_ = 0;
};

void set_where(YamlNode& node, const std::string& where) {
  node.where = where;
  for (YamlNode& item : node.items) set_where(item, where);
}

}  // namespace

const YamlNode* YamlNode::find(const std::string& name) const {
  for (const YamlNode& item : items) {
    if (item.key == name) return &item;
  }
  return nullptr;
}

YamlNode* YamlNode::find(const std::string& name) {
  return const_cast<YamlNode*>(std::as_const(*this).find(name));
}

YamlNode parse_yaml(const std::string& text, const std::string& name) {
  check_text(text, name);
  // yaml-cpp takes the end of the text for a closing quote if a line break comes before it.
  std::istringstream in(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
  Builder builder(name);
  try {
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(builder)) return {};
    YamlNode root = builder.take();
    Builder second(name);
    if (parser.HandleNextDocument(second)) {
      throw config_error(second.take().where, ": a second document starts here; one is allowed");
    }
    return root;
  } catch (const YAML::Exception& failure) {
    throw config_error(name, ":", failure.mark.line + 1, ": not valid YAML: ", failure.msg);
  }
}

void set_yaml(YamlNode& root, const std::string& assignment) {
  const std::string where = "--set " + assignment;
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos) throw usage_error(where, ": expected KEY=VALUE");
  YamlNode value = parse_yaml(assignment.substr(equals + 1), where);
  set_where(value, where);
  set_yaml(root, assignment.substr(0, equals), std::move(value));
}

void set_yaml(YamlNode& root, const std::string& key, YamlNode value) {
  const std::string& where = value.where;
  YamlNode* node = &root;
  std::istringstream parts(key + ".");
  for (std::string part; std::getline(parts, part, '.');) {
    if (part.empty()) throw usage_error(where, ": a part of the key is empty");
    if (node->kind != YamlNode::Kind::kMap) {
      // Below a plain value there is no key: the reader will say so.
      *node = YamlNode{YamlNode::Kind::kMap, node->key, where, "", false, {}};
    }
    YamlNode* next = node->find(part);
    if (next == nullptr) {
      node->items.emplace_back();
      next = &node->items.back();
      next->key = part;
      next->where = where;
    }
    node = next;
  }
  value.key = node->key;
  *node = std::move(value);
}

std::string yaml_word(const std::string& word) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '/' || c == '.' || c == '-' || c == '+';
  };
  const bool like_null = word.empty() || word == "null" || word == "Null" || word == "NULL";
  if (!like_null && word[0] != '-' && word[0] != '.' &&
      std::all_of(word.begin(), word.end(), is_plain)) {
    return word;
  }
  std::string quoted = "\"";
  for (const char c : word) {
    constexpr const char* kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      quoted += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace anabranch
