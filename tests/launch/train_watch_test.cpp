// What can be seen of a run: its endpoint, its lines, and what the other verbs make of its result.
#include <array>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <regex>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// What a scraper gets.
std::string scrape(int port) {
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = loopback(port);
  std::string answer;
  if (connect(handle, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    send(handle, request.data(), request.size(), MSG_NOSIGNAL);
    std::array<char, 4096> block{};
    for (ssize_t got = 0; (got = recv(handle, block.data(), block.size(), 0)) > 0;) {
      answer.append(block.data(), static_cast<size_t>(got));
    }
  }
  close(handle);
  return answer;
}

// The value of the first sample whose name and labels match; -1 if there is none.
double sample(const std::string& exposition, const std::string& name) {
  const std::regex line("(^|\n)" + name + "(\\{[^}]*\\})? ([-+.0-9e]+)");
  std::smatch found;
  return std::regex_search(exposition, found, line) ? std::stod(found[3]) : -1;
}

class TrainWatch : public TrainJobs {};

TEST_F(TrainWatch, TheEndpointFollowsTheRun) {
  namespace fs = std::filesystem;
  const auto job = train(
      "run", 2, {kEndless, "--set=metrics.listen=127.0.0.1:0", "--set=checkpoint.every_steps=2"});
  ASSERT_TRUE(has_come_to("run", 5)) << job->output();
  const std::string output = job->output();
  const std::regex line("metrics at http://127\\.0\\.0\\.1:([0-9]+)/metrics");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(output, found, line)) << output;
  const int port = std::stoi(found[1]);

  const std::string first = scrape(port);
  EXPECT_THAT(first, HasSubstr("200 OK"));
  EXPECT_GE(sample(first, "anabranch_step"), 1);
  EXPECT_GT(sample(first, "anabranch_loss"), 0);
  EXPECT_EQ(sample(first, "anabranch_ranks"), 2);
  EXPECT_TRUE(test::soon(
      [&] { return sample(scrape(port), "anabranch_step") > sample(first, "anabranch_step"); }));

  // A disk that refuses shows, and does not stop the run.
  const fs::path checkpoints = path("run") / "checkpoints", away = path("run") / "away";
  EXPECT_LE(sample(scrape(port), "anabranch_checkpoint_failures_total"), 0);
  ASSERT_TRUE(test::soon([&] { return !test::saved_steps(path("run")).empty(); }));
  fs::rename(checkpoints, away);
  std::ofstream(checkpoints) << "in the way";
  EXPECT_TRUE(
      test::soon([&] { return sample(scrape(port), "anabranch_checkpoint_failures_total") >= 1; }));
  fs::remove(checkpoints);
  EXPECT_TRUE(test::soon([&] {  // a save may make the folder anew just now
    std::error_code failure;
    fs::remove_all(checkpoints, failure);
    fs::rename(away, checkpoints, failure);
    return !failure;
  }));
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();

  // metrics.jsonl has whole lines of every kind.
  std::istringstream lines(text_of("run/metrics.jsonl"));
  std::map<std::string, int> kinds;
  int failed_saves = 0;
  for (std::string text; std::getline(lines, text);) {
    const auto report = nlohmann::json::parse(text);
    ++kinds[report.at("type")];
    failed_saves += report.at("type") == "save" && report.contains("error");
  }
  for (const char* kind : {"step", "save", "event"}) EXPECT_GT(kinds[kind], 0) << kind;
  EXPECT_GE(failed_saves, 1);
}

TEST_F(TrainWatch, APortThatIsTakenIsAWarning) {
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(handle, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(handle, 1), 0);
  ASSERT_EQ(getsockname(handle, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string listen = join("127.0.0.1:", ntohs(address.sin_port));
  const Ended end = train_to_end("run", 2, {"--set=metrics.listen=" + listen});
  EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr(listen));
  EXPECT_EQ(std::ssize(losses("run")), kSteps);
  close(handle);
}

TEST_F(TrainWatch, AHostThatIsNoneIsAWarning) {
  for (const char* listen : {"nosuch.invalid:9090", "256.1.1.1:9"}) {
    const Ended end = train_to_end(listen, 0, {join("--set=metrics.listen=", listen)});
    EXPECT_EQ(end.exit_code, 0) << end.output;
    EXPECT_THAT(end.output, testing::Not(HasSubstr("metrics at http")));
    EXPECT_THAT(end.output, HasSubstr(join("metrics.listen ", listen, " cannot be served (host ")));
    EXPECT_FALSE(std::filesystem::exists(path(listen) / "targets.json"));
    EXPECT_EQ(std::ssize(losses(listen)), kSteps);
  }
}

TEST_F(TrainWatch, TheRunIsNamedAfterItsDirectory) {
  const auto job = train("kindly named", 0, {kEndless, "--set=metrics.listen=127.0.0.1:0"});
  ASSERT_TRUE(has_come_to("kindly named", 1)) << job->output();
  const std::string targets = text_of("kindly named/targets.json");
  EXPECT_THAT(targets, HasSubstr("\"run\": \"kindly-named\""));
  EXPECT_THAT(targets, HasSubstr("\"sweep\": \"none\""));
  EXPECT_EQ(text_of("targets/kindly named.json"), targets);
  test::spill(path("kindly named") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
  EXPECT_TRUE(std::filesystem::is_empty(path("targets")));
  EXPECT_THAT(job->output(), HasSubstr("run kindly-named in "));
  EXPECT_THAT(job->output(), HasSubstr(": 1 rank, 1000000 steps of 12 sequences, 4 micro-batches"));
}

TEST_F(TrainWatch, OtherVerbsTakeTheResult) {
  ASSERT_EQ(train_to_end("run", 2, {"--profile=3:4"}).exit_code, 0);
  const std::string run = path("run").string();
  for (const int rank : {0, 1}) {
    const auto trace = nlohmann::json::parse(text_of(join("run/trace-rank-", rank, ".json")));
    EXPECT_GT(trace.at("traceEvents").size(), 10U);
  }
  const Ended verified = program({"checkpoint", "verify", run});
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  const Ended inspected = program({"checkpoint", "inspect", run});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.output;
  const Ended measured = program({"eval", run, "--json"});
  EXPECT_EQ(measured.exit_code, 0) << measured.output;
  const Ended beside = program({"eval", run, "--bigram", "--device", "cpu"});
  EXPECT_THAT(beside.output, HasSubstr("device: cpu, as device says\n"));
  EXPECT_THAT(beside.output, testing::ContainsRegex(
                                 "text validation: the model (beats the bigram by|does not beat "
                                 "the bigram, it is) [0-9.]+ nats a token"));
  const Ended sampled = program({"generate", run, "--prompt", "the river", "--tokens", "5"});
  EXPECT_EQ(sampled.exit_code, 0) << sampled.output;
  EXPECT_THAT(sampled.output, HasSubstr("the river"));
  EXPECT_THAT(sampled.output,
              testing::ContainsRegex("device: (cpu|cuda), (auto: |as device says)"));
  const Ended exported = program({"checkpoint", "export", run, "--out", path("out").string()});
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  for (const std::string& word :
       {path("out").string() + ": step 30", std::string("model.safetensors"),
        std::string("config.json"), std::string("tokenizer.json")}) {
    EXPECT_THAT(exported.output, HasSubstr(word));
  }
  const auto again = [&](const std::string& folder) {
    return program({"checkpoint", "export", run, "--out", path(folder).string()});
  };
  EXPECT_EQ(again("out").exit_code, 0);  // an earlier export is replaced
  std::filesystem::create_directory(path("mine"));
  std::ofstream(path("mine/config.json")) << "mine";
  const Ended refused = again("mine");
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.output, HasSubstr("already holds config.json"));
  EXPECT_EQ(text_of("mine/config.json"), "mine");
}

}  // namespace
}  // namespace anabranch
