// Who asks a run's endpoint, however often and however badly, does not change the run; and what a
// killed run leaves of its endpoint is cleared away.
#include <atomic>
#include <csignal>
#include <deque>
#include <filesystem>
#include <functional>
#include <regex>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"
#include "tests/support/http.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

using test::HttpClient;
using testing::HasSubstr;

constexpr const char* kServed = "--set=metrics.listen=127.0.0.1:0";

int port_of(const test::Process& job) {
  const std::string output = job.output();
  const std::regex line("metrics at http://127\\.0\\.0\\.1:([0-9]+)/metrics");
  std::smatch found;
  return std::regex_search(output, found, line) ? std::stoi(found[1]) : 0;
}

// A request that is wrong in one of many ways, by its number; seldom right.
std::string broken_request(uint64_t number) {
  const auto word = [&](uint64_t i) { return philox(7, number, i)[0]; };
  const std::string whole = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
  std::string text;
  // Pages are made at a limited rate, so that what may be answered by one must be seldom.
  const uint64_t kind = word(0) % 8, seldom = word(3) % 8;
  switch (kind == 1 || kind == 4 || kind == 6 ? (seldom == 0 ? kind : 7) : kind) {
    case 0:  // bytes of any kind
      for (uint64_t i = 1; i < 1 + word(1) % 400; ++i) text += static_cast<char>(word(i + 1));
      return text;
    case 1:  // some bytes changed
      text = whole;
      for (uint64_t i = 1; i < 5; ++i) text[word(i) % text.size()] = static_cast<char>(word(i + 9));
      return text;
    case 2:  // half of it
      return whole.substr(0, word(1) % whole.size());
    case 3:  // a header without an end
      return "GET / HTTP/1.1\r\nX: " + std::string(1000 + word(1) % 30000, 'x');
    case 4:  // more headers than there is room for
      text = "GET / HTTP/1.1\r\n";
      for (uint64_t i = 0; i < 200; ++i) text += join("H", i, ": ", word(i), "\r\n");
      return text + "\r\n";
    case 5:  // a body that is announced and does not come, or is no body
      return join("POST / HTTP/1.1\r\nContent-Length: ", word(1), "\r\n\r\nx");
    case 6:  // a path that leads out
      return join("GET /", std::string(word(1) % 300, '.'), "%2e%2e/../%00%ff?", word(2),
                  " HTTP/1.1\r\n\r\n");
    default:
      return join("G", word(1), " ", word(2), " HTTP/9.9\r\nTransfer-Encoding: chunked\r\n\r\nfff");
  }
}

class TrainScrape : public TrainJobs {};

TEST_F(TrainScrape, ClientsOfEveryKindChangeNothing) {
  constexpr uint64_t kRequests = 10000, kBroken = 8, kHammering = 50;
  const auto job = train("watched", 2, {kEndless, kLevel, kServed});
  ASSERT_TRUE(has_come_to("watched", 2)) << job->output();
  const int port = port_of(*job);
  ASSERT_GT(port, 0) << job->output();

  std::deque<HttpClient> idle;
  for (int i = 0; i < 30; ++i) idle.emplace_back(port);
  // Each of `count` clients does its own part, beside the others.
  const auto together = [](uint64_t count, const std::function<void(uint64_t)>& part) {
    std::vector<std::thread> clients;
    for (uint64_t i = 0; i < count; ++i) clients.emplace_back(part, i);
    for (std::thread& client : clients) client.join();
  };
  std::atomic<int> answered = 0;
  together(kHammering, [&](uint64_t i) {
    for (int k = 0; k < 5; ++k) {
      const std::string answer = test::http_get(port, i % 2 == 0 ? "/metrics" : "/");
      answered += answer.starts_with("HTTP/1.1 200");
    }
  });
  EXPECT_EQ(answered, 5 * kHammering);
  together(kBroken, [&](uint64_t i) {
    for (uint64_t k = i; k < kRequests; k += kBroken) {
      const HttpClient client(port);
      static_cast<void>(client.say(broken_request(k)));
      // Some hang up at once; if all did, the system would turn most away and make them wait.
      if (k % 3 == 0) continue;
      client.finish();
      static_cast<void>(client.hear());
    }
  });

  EXPECT_THAT(test::http_get(port, "/metrics"), HasSubstr("anabranch_step "));
  test::spill(path("watched") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();

  const Ended end = train_to_end("alone", 2, {kLevel});
  ASSERT_EQ(end.exit_code, 0) << end.output;
  const auto alone = losses_by_step("alone"), watched = losses_by_step("watched");
  ASSERT_GE(watched.size(), alone.size());
  for (const auto& [step, loss] : alone) EXPECT_EQ(watched.at(step), loss) << "step " << step;
}

TEST_F(TrainScrape, LogsOnAFullDiskChangeNothing) {
  ASSERT_EQ(train_to_end("alone", 2, {kLevel}).exit_code, 0);
  fs::create_directories(path("full") / "log");
  for (const char* file : {"metrics.jsonl", "log/rank-0000.log", "log/rank-0001.log"}) {
    fs::create_symlink("/dev/full", path("full") / file);
  }
  const Ended end = train_to_end("full", 2, {kLevel, kServed});
  EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(end.output, HasSubstr("metrics at http"));
  EXPECT_EQ(test::checkpoint_tensors(path("full"), kSteps),
            test::checkpoint_tensors(path("alone"), kSteps));
}

TEST_F(TrainScrape, TheTargetOfAKilledRunIsReaped) {
  const auto killed = train("runs/killed", 0, {kEndless, kServed});
  const auto alive = train("runs/alive", 0, {kEndless, kServed});
  const fs::path stale = path("runs/killed/targets.json"), good = path("runs/alive/targets.json");
  ASSERT_TRUE(test::soon([&] { return fs::exists(stale) && fs::exists(good); }));
  kill(killed->id(), SIGKILL);
  EXPECT_EQ(killed->wait(), 128 + SIGKILL);
  EXPECT_TRUE(fs::exists(stale));

  EXPECT_EQ(train_to_end("runs/next", 0).exit_code, 0);
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(good));
  test::spill(path("runs/alive") / "stop", "");
  EXPECT_EQ(finish(*alive).exit_code, 130) << alive->output();
  EXPECT_FALSE(fs::exists(good));
}

// How much it takes is for tests/bench/endpoint.sh; that it is counted, for here.
TEST_F(TrainScrape, TheTimeSpentOnRecordingIsCounted) {
  const auto job = train("run", 0, {kEndless, kServed});
  ASSERT_TRUE(has_come_to("run", 5)) << job->output();
  const std::string text = test::http_get(port_of(*job), "/metrics");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found,
                                std::regex("\nanabranch_recording_seconds_total ([-+.0-9e]+)\n")))
      << text;
  EXPECT_GT(std::stod(found[1]), 0);
  EXPECT_LT(std::stod(found[1]), 60);
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
}

}  // namespace
}  // namespace anabranch
