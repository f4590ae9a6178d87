#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/program.h"
#include "launch/progress.h"

namespace anabranch {

namespace {

using Json = nlohmann::json;

struct WatchOptions {
  std::string run;
  bool once = false;
  bool json = false;
  double every = 1;
};

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : -1;
}

std::string field(const char* name, const Json& line, const char* key) {
  std::ostringstream text;
  text.precision(4);
  const auto found = line.find(key);
  if (found == line.end()) return "";
  text << "  " << name << " ";
  if (found->is_number()) {
    text << found->get<double>();
  } else {
    text << *found;
  }
  return text.str();
}

std::string readable(const Json& line) {
  const std::string type = line.value("type", "?");
  std::string text = type + " " + count_text(number(line, "step"));
  if (type == "step") {
    text += field("loss", line, "loss") + field("lr", line, "learning_rate") +
            field("norm", line, "gradient_norm");
    if (number(line, "tokens_per_second") >= 0) {
      text += "  " + count_text(number(line, "tokens_per_second")) + " tokens/s";
    }
    text += field("MFU", line, "mfu_ratio");
    return text;
  }
  for (const auto& [key, value] : line.items()) {
    if (key != "type" && key != "step") text += field(key.c_str(), line, key.c_str());
  }
  return text;
}

void print(const std::string& line, bool json) {
  if (json) {
    std::cout << line << std::endl;
    return;
  }
  const Json parsed = Json::parse(line, nullptr, false);
  std::cout << (parsed.is_object() ? readable(parsed) : "unreadable: " + line) << std::endl;
}

// Prints the whole lines from `from` on and returns where the next one begins.
std::streamoff print_from(const std::string& path, std::streamoff from, bool json) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(from);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    print(line, json);
    from += static_cast<std::streamoff>(line.size()) + 1;
  }
  return from;
}

// Where the last `count` lines begin.
std::streamoff last_lines(const std::string& path, size_t count) {
  std::ifstream in(path, std::ios::binary);
  std::vector<std::streamoff> begins{0};
  for (std::string line; std::getline(in, line);) {
    if (!in.eof()) begins.push_back(in.tellg());
  }
  return begins.size() > count ? begins[begins.size() - 1 - count] : 0;
}

void watch(const WatchOptions& options) {
  const std::string path = options.run + "/metrics.jsonl";
  if (!std::filesystem::exists(path)) {
    throw data_error(path, ": no such file; expected a run directory with metrics");
  }
  std::streamoff at = options.json ? 0 : last_lines(path, 20);
  while (true) {
    // A run that starts over may have cut the file.
    if (static_cast<std::streamoff>(std::filesystem::file_size(path)) < at) at = 0;
    at = print_from(path, at, options.json);
    if (options.once) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.every));
  }
}

}  // namespace

void add_watch(CLI::App& app) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* verb = app.add_subcommand("watch", "follows a run's metrics until interrupted");
  verb->add_option("RUN", options->run, "run directory")->required();
  verb->add_flag("--once", options->once, "print what is there and end");
  verb->add_flag("--json", options->json, "all lines as they are in metrics.jsonl");
  verb->add_option("--every", options->every, "seconds between two looks")
      ->check(CLI::Range(0.05, 3600.0));
  verb->callback([options] { watch(*options); });
}

}  // namespace anabranch
