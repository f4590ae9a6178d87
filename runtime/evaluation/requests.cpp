#include "runtime/evaluation/requests.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "data/text/byte_stream.h"

namespace anabranch {

namespace {

using Json = nlohmann::json;

constexpr int64_t kLongestLine = int64_t{16} << 20U;
constexpr int64_t kMostTokens = int64_t{1} << 20U;
constexpr std::array<const char*, 3> kTypes = {"loglikelihood", "loglikelihood_rolling",
                                               "generate_until"};

// Fields of one line.
class Fields {
 public:
  Fields(const std::string& line, std::string where) : where_(std::move(where)) {
    json_ = Json::parse(line, nullptr, false);
    if (!json_.is_object()) fail("no JSON object in UTF-8");
  }

  [[noreturn]] void fail(const std::string& what) const { throw data_error(where_, ": ", what); }

  [[nodiscard]] std::string id() const {
    const auto at = json_.find("id");
    if (at == json_.end() || !(at->is_string() || at->is_number_integer())) {
      fail("no \"id\" that is a text or a whole number");
    }
    return at->dump();
  }

  [[nodiscard]] RequestType type() const {
    const std::string word = text("type");
    const auto at = std::ranges::find(kTypes, word);
    if (at != kTypes.end()) return static_cast<RequestType>(at - kTypes.begin());
    fail(join("\"type\" is ", quote(word), "; expected ", kTypes[0], ", ", kTypes[1], " or ",
              kTypes[2]));
  }

  [[nodiscard]] std::string text(const char* key) const {
    const auto at = json_.find(key);
    if (at == json_.end() || !at->is_string()) fail(join("no text ", quote(key)));
    return at->get<std::string>();
  }

  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    const auto at = json_.find(key);
    const auto is_text = [](const Json& each) { return each.is_string(); };
    if (at == json_.end() || !at->is_array() || !std::ranges::all_of(*at, is_text)) {
      fail(join("no list of texts ", quote(key)));
    }
    return at->get<std::vector<std::string>>();
  }

  [[nodiscard]] int64_t tokens(const char* key) const {
    const auto at = json_.find(key);
    // One above the greatest int64 reads as unsigned.
    const bool whole = at != json_.end() && at->is_number_unsigned();
    if (!whole || at->get<uint64_t>() > static_cast<uint64_t>(kMostTokens)) {
      fail(join("no whole number ", quote(key), " from 0 to ", kMostTokens));
    }
    return at->get<int64_t>();
  }

 private:
  std::string where_;
  Json json_;
};

Request request_of(std::string line, std::string where) {
  const Fields fields(line, where);
  Request request;
  request.id = fields.id();
  request.type = fields.type();
  switch (request.type) {
    case RequestType::kLoglikelihood:
      request.context = fields.text("context");
      request.text = fields.text("continuation");
      if (request.text.empty()) fields.fail("\"continuation\" is empty");
      break;
    case RequestType::kRolling:
      request.text = fields.text("text");
      break;
    case RequestType::kGenerateUntil:
      request.context = fields.text("context");
      request.until = fields.texts("until");
      request.max_tokens = fields.tokens("max_tokens");
      break;
  }
  request.line = std::move(line);
  request.where = std::move(where);
  return request;
}

}  // namespace

std::vector<Request> read_requests(const std::string& path) {
  LineReader lines(path, kLongestLine);
  std::vector<Request> requests;
  std::unordered_map<std::string, int64_t> seen;
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    requests.push_back(request_of(line, join(path, ":", lines.number())));
    const auto [first, fresh] = seen.emplace(requests.back().id, lines.number());
    if (fresh) continue;
    throw data_error(requests.back().where, ": the id ", quote(requests.back().id),
                     " is that of line ", first->second, " too");
  }
  return requests;
}

}  // namespace anabranch
