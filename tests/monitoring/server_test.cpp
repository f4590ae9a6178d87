#include "monitoring/server.h"

#include <arpa/inet.h>
#include <array>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace anabranch {

namespace {

using testing::HasSubstr;

// What a scraper gets from a port of the loopback address.
std::string scrape(int port) {
  const int handle = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(handle, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return "refused";
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(send(handle, request.data(), request.size(), 0), std::ssize(request));
  std::string answer;
  std::array<char, 4096> block{};
  for (ssize_t got = 0; (got = recv(handle, block.data(), block.size(), 0)) > 0;) {
    answer.append(block.data(), static_cast<size_t>(got));
  }
  close(handle);
  return answer;
}

struct Warnings {
  std::vector<std::string> lines;
  Warn warn = [this](const std::string& line) { lines.push_back(line); };
};

TEST(MetricsServer, ServesThePresentValues) {
  Warnings warnings;
  Metrics metrics(Labels{{"run", "a"}});
  const MetricsServer server(metrics, "127.0.0.1:0", warnings.warn);
  ASSERT_TRUE(server.serving());
  EXPECT_EQ(server.address(), "127.0.0.1:" + std::to_string(server.port()));
  metrics.set(Metric::kStep, 17);
  EXPECT_THAT(scrape(server.port()), HasSubstr("\nanabranch_step 17\n"));
  metrics.set(Metric::kStep, 18);
  EXPECT_THAT(scrape(server.port()), HasSubstr("\nanabranch_step 18\n"));
  EXPECT_TRUE(warnings.lines.empty());
}

TEST(MetricsServer, TakenPortIsAWarning) {
  Warnings warnings;
  const Metrics metrics(Labels{});
  const MetricsServer first(metrics, "127.0.0.1:0", warnings.warn);
  const std::string listen = first.address();
  const MetricsServer second(metrics, listen, warnings.warn);
  EXPECT_FALSE(second.serving());
  EXPECT_EQ(second.port(), 0);
  ASSERT_EQ(warnings.lines.size(), 1U);
  EXPECT_THAT(warnings.lines[0], HasSubstr(listen));
  EXPECT_THAT(warnings.lines[0], HasSubstr("Address already in use"));
  EXPECT_THAT(scrape(first.port()), HasSubstr("anabranch_step"));
}

TEST(MetricsServer, FreesItsPort) {
  Warnings warnings;
  const Metrics metrics(Labels{});
  int port = 0;
  {
    const MetricsServer server(metrics, "127.0.0.1:0", warnings.warn);
    port = server.port();
  }
  EXPECT_EQ(scrape(port), "refused");
}

TEST(MetricsServer, OffAndBadAddresses) {
  Warnings warnings;
  const Metrics metrics(Labels{});
  EXPECT_FALSE(MetricsServer(metrics, "off", warnings.warn).serving());
  EXPECT_TRUE(warnings.lines.empty());
  EXPECT_FALSE(MetricsServer(metrics, "192.0.2.1:9", warnings.warn).serving());
  EXPECT_FALSE(MetricsServer(metrics, "nonsense", warnings.warn).serving());
  EXPECT_EQ(warnings.lines.size(), 2U);
}

TEST(MetricsServer, HostsThatAreNoneAreNotServed) {
  for (const char* listen : {"nosuch.invalid:0", "256.1.1.1:0", "nosuch.invalid:9090", "1.2.3:x"}) {
    Warnings warnings;
    const Metrics metrics(Labels{});
    EXPECT_FALSE(MetricsServer(metrics, listen, warnings.warn).serving()) << listen;
    ASSERT_EQ(warnings.lines.size(), 1U) << listen;
    EXPECT_THAT(warnings.lines[0], HasSubstr(listen));
  }
}

TEST(MetricsServer, TakesNames) {
  Warnings warnings;
  const Metrics metrics(Labels{});
  const MetricsServer server(metrics, "localhost:0", warnings.warn);
  ASSERT_TRUE(server.serving());
  EXPECT_EQ(server.address(), "localhost:" + std::to_string(server.port()));
  EXPECT_THAT(scrape(server.port()), HasSubstr("anabranch_step"));
}

TEST(MetricsServer, OffersWhatItsLibraryCan) {
  const Metrics metrics(Labels{{"run", "a"}});
  Warnings warnings;
  EXPECT_FALSE(MetricsServer(metrics, "[::1]:0", warnings.warn).serving());
  ASSERT_EQ(warnings.lines.size(), 1U);
  EXPECT_THAT(warnings.lines[0], HasSubstr("IPv6 is not supported"));
}

TEST(TargetsFile, LivesAsLongAsTheObject) {
  const test::TempDir folder;
  const std::string dir = folder.path();
  Warnings warnings;
  {
    const TargetsFile file(dir + "/targets.json", "127.0.0.1:9", {{"run", "a\"b"}}, warnings.warn);
    std::ifstream in(dir + "/targets.json");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_THAT(text, testing::MatchesRegex(
                          "\\[[^a-z]*\"targets\": \\[[^a-z]*\"127.0.0.1:9\"[^a-z]*\\],[^a-z]*"
                          "\"labels\": \\{[^a-z]*\"run\": \"a\\\\\"b\"[^a-z]*\\}[^a-z]*\\]\n"));
    EXPECT_FALSE(std::filesystem::exists(dir + "/targets.json.tmp"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir));
  EXPECT_TRUE(warnings.lines.empty());
  { const TargetsFile file(dir + "/none/targets.json", "127.0.0.1:9", {}, warnings.warn); }
  ASSERT_EQ(warnings.lines.size(), 1U);
  EXPECT_THAT(warnings.lines[0], HasSubstr("none/targets.json: No such file"));
}

}  // namespace

}  // namespace anabranch
