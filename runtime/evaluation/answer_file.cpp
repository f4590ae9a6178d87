#include "runtime/evaluation/answer_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/read_file.h"
#include "core/base/sha256.h"
#include "runtime/file_lock.h"

namespace anabranch {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kBytesOfToken = 4;  // about

// A line that is there already.
struct Kept {
  std::string id, mark, where;
};

// The file of answers, as rank 0 has it.
class AnswerFile {
 public:
  explicit AnswerFile(std::string path) : path_(std::move(path)), lock_(FileLock::take(path_)) {
    if (!lock_) throw io_error(path_, " is being written by another process");
  }

  // The answers that are there. Takes away a last line that has no end.
  std::vector<Kept> read() {
    const std::string text = read_file(path_);
    const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    std::vector<Kept> answers;
    int64_t number = 0;
    for (size_t begin = 0; begin < whole;) {
      const size_t end = text.find('\n', begin);
      const std::string where = join(path_, ":", ++number);
      const Json line = Json::parse(text.substr(begin, end - begin), nullptr, false);
      const auto mark = line.is_object() ? line.find("of") : line.end();
      if (!line.is_object() || !line.contains("id") || mark == line.end() || !mark->is_string()) {
        throw data_error(where, ": no answer; give --out a file of its own");
      }
      answers.push_back({line["id"].dump(), mark->get<std::string>(), where});
      begin = end + 1;
    }
    const std::string rest = text.substr(whole);
    if (!rest.starts_with(kStart) && !std::string_view(kStart).starts_with(rest)) {
      throw data_error(path_, ":", number + 1, ": no answer; give --out a file of its own");
    }
    if (!rest.empty()) std::filesystem::resize_file(path_, whole);
    return answers;
  }

  void append(const std::string& lines) {
    std::ofstream out(path_, std::ios::binary | std::ios::app);
    out << lines << std::flush;
    if (!out) throw io_error("cannot write ", path_, "; is the disk full?");
  }

 private:
  static constexpr const char* kStart = "{\"id\":";

  std::string path_;
  std::optional<FileLock> lock_;
};

std::string mark_of(const Request& request, const std::string& model_name,
                    const AnswerOptions& options) {
  return sha256(join(model_name, options.begin ? "\nbegin\n" : "\n\n", request.line)).substr(0, 16);
}

std::string line_of(const Request& request, const Answer& answer, const std::string& mark) {
  Json line = {{"id", Json::parse(request.id)}};
  if (request.type == RequestType::kGenerateUntil) {
    line["text"] = answer.text;
  } else {
    line["logprob"] = answer.logprob;
  }
  if (request.type == RequestType::kLoglikelihood) line["is_greedy"] = answer.greedy;
  line["tokens"] = answer.tokens;
  line["of"] = mark;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Which requests are answered: 1 of each that is, on all ranks.
std::vector<uint8_t> answered(const std::vector<Request>& requests,
                              const std::vector<std::string>& marks,
                              std::optional<AnswerFile>& file, Group& world) {
  Tensor done({std::max<int64_t>(std::ssize(requests), 1)}, DType::kU8);
  done.fill_zero();
  if (file) {
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < requests.size(); ++i) places[requests[i].id] = i;
    for (const Kept& kept : file->read()) {
      const auto at = places.find(kept.id);
      if (at == places.end() || marks[at->second] != kept.mark) {
        throw data_error(kept.where, ": answers none of these requests of this model; remove the ",
                         "file or give --out another");
      }
      done.data<uint8_t>()[at->second] = 1;
    }
  }
  world.broadcast(done, 0).wait();
  return {done.data<uint8_t>(), done.data<uint8_t>() + requests.size()};
}

// Every rank's text, on all of them.
std::vector<std::string> gather(const std::string& text, Group& world) {
  Tensor longest = Tensor::of<int64_t>({1}, {std::ssize(text)});
  world.all_reduce_max(longest).wait();
  const int64_t bytes = longest.data<int64_t>()[0], width = bytes + 1;
  Tensor whole({world.size(), width}, DType::kU8), part({1, width}, DType::kU8);
  part.fill_zero();  // where a text ends: no line has a zero byte
  std::ranges::copy(text, part.data<uint8_t>());
  world.all_gather(whole, part).wait();
  std::vector<std::string> all;
  for (int64_t r = 0; r < world.size(); ++r) {
    all.emplace_back(reinterpret_cast<const char*>(whole.data<uint8_t>() + r * width));
  }
  return all;
}

// Requests that ranks answer between two writes, by rank: those that follow each other with one
// context stay together.
struct Share {
  std::vector<std::vector<size_t>> of_rank;
  size_t end = 0;  // the first request behind it
};

Share share_from(size_t begin, const std::vector<Request>& requests,
                 const std::vector<uint8_t>& done, int ranks, int64_t bytes) {
  Share part{.of_rank = std::vector<std::vector<size_t>>(static_cast<size_t>(ranks)), .end = begin};
  int64_t taken = 0;
  size_t rank = 0;
  const Request* last = nullptr;
  for (; part.end < requests.size(); ++part.end) {
    if (done[part.end] != 0) continue;
    const Request& request = requests[part.end];
    const bool together = last != nullptr && request.type == RequestType::kLoglikelihood &&
                          last->type == request.type && last->context == request.context;
    if (taken >= bytes * ranks) break;
    if (last != nullptr && !together) rank = (rank + 1) % static_cast<size_t>(ranks);
    part.of_rank[rank].push_back(part.end);
    taken += std::ssize(request.line) + kBytesOfToken * request.max_tokens;
    last = &request;
  }
  return part;
}

// The ranks' lines in the order of their requests.
std::string in_order(const Share& part, const std::vector<std::string>& lines) {
  std::vector<std::pair<size_t, std::string_view>> all;
  for (size_t r = 0; r < lines.size(); ++r) {
    std::string_view rest = lines[r];
    for (const size_t place : part.of_rank[r]) {
      const size_t end = rest.find('\n') + 1;
      all.emplace_back(place, rest.substr(0, end));
      rest.remove_prefix(end);
    }
  }
  std::ranges::sort(all);
  std::string text;
  for (const auto& [place, line] : all) text += line;
  return text;
}

}  // namespace

AnswerFileCounts answer_file(const std::string& requests_path, const std::string& out, Model& model,
                             const Tokenizer& tokenizer, const std::string& model_name,
                             Group& world, const AnswerFileOptions& options,
                             const std::function<void(size_t done, size_t all)>& progress) {
  check_causal(model);
  const std::vector<Request> requests = read_requests(requests_path);
  Answerer answerer(model, tokenizer, options.answers);
  std::vector<std::string> marks;
  for (const Request& request : requests) {
    answerer.check(request);
    marks.push_back(mark_of(request, model_name, options.answers));
  }
  std::optional<AnswerFile> file;
  if (world.rank() == 0) file.emplace(out);
  const std::vector<uint8_t> done = answered(requests, marks, file, world);
  AnswerFileCounts counts{.requests = std::ssize(requests), .kept = std::ranges::count(done, 1)};
  auto finished = static_cast<size_t>(counts.kept);
  const int64_t bytes = options.part_bytes > 0 ? options.part_bytes
                                               : 16 * kBytesOfToken * options.answers.batch_tokens;
  Tensor tokens({1}, DType::kI64);
  tokens.fill_zero();
  for (size_t begin = 0; begin < requests.size();) {
    const Share part = share_from(begin, requests, done, world.size(), bytes);
    std::vector<const Request*> mine;
    for (const size_t place : part.of_rank[static_cast<size_t>(world.rank())]) {
      mine.push_back(&requests[place]);
    }
    const std::vector<Answer> answers = answerer.answer(mine);
    std::string lines;
    for (size_t i = 0; i < mine.size(); ++i) {
      const auto place = static_cast<size_t>(mine[i] - requests.data());
      lines += line_of(*mine[i], answers[i], marks[place]);
      tokens.data<int64_t>()[0] += answers[i].tokens;
    }
    const std::vector<std::string> all = gather(lines, world);
    if (file) file->append(in_order(part, all));
    for (const auto& places : part.of_rank) finished += places.size();
    if (progress) progress(finished, requests.size());
    begin = part.end;
  }
  world.all_reduce_sum(tokens).wait();
  counts.tokens = tokens.data<int64_t>()[0];
  return counts;
}

}  // namespace anabranch
