#include "monitoring/server.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http.h"

namespace anabranch {

namespace {

using testing::HasSubstr;

// What a scraper gets from a port of the loopback address.
std::string scrape(int port) { return test::http_get(port, "/metrics"); }

const RunHistory kNoHistory;

struct Warnings {
  std::vector<std::string> lines;
  Warn warn = [this](const std::string& line) { lines.push_back(line); };
};

TEST(MetricsServer, ServesThePresentValues) {
  Warnings warnings;
  Metrics metrics(Labels{{"run", "a"}});
  const MetricsServer server(metrics, kNoHistory, "127.0.0.1:0", warnings.warn);
  ASSERT_TRUE(server.serving());
  EXPECT_EQ(server.address(), "127.0.0.1:" + std::to_string(server.port()));
  metrics.set(Metric::kStep, 17);
  EXPECT_THAT(scrape(server.port()), HasSubstr("\nanabranch_step 17\n"));
  metrics.set(Metric::kStep, 18);
  EXPECT_THAT(scrape(server.port()), HasSubstr("\nanabranch_step 18\n"));
  EXPECT_TRUE(warnings.lines.empty());
}

TEST(MetricsServer, ServesPagesBesideTheMetrics) {
  Warnings warnings;
  const Metrics metrics(Labels{{"run", "a"}});
  const MetricsServer server(metrics, kNoHistory, "127.0.0.1:0", warnings.warn);
  const auto get = [&](const char* path) { return test::http_get(server.port(), path); };
  EXPECT_THAT(get("/"), HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(get("/"), HasSubstr("<h1>a</h1>"));
  EXPECT_THAT(get("/utilisation"), HasSubstr("Resident memory of a rank"));
  EXPECT_THAT(get("/page.js"), HasSubstr("Content-Type: text/javascript\r\n"));
  EXPECT_THAT(get("/metrics"), HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"));
  EXPECT_THAT(get("/favicon.ico"), testing::StartsWith("HTTP/1.1 404 "));
}

TEST(MetricsServer, TakenPortIsAWarning) {
  Warnings warnings;
  const Metrics metrics(Labels{});
  const MetricsServer first(metrics, kNoHistory, "127.0.0.1:0", warnings.warn);
  const std::string listen = first.address();
  const MetricsServer second(metrics, kNoHistory, listen, warnings.warn);
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
    const MetricsServer server(metrics, kNoHistory, "127.0.0.1:0", warnings.warn);
    port = server.port();
  }
  EXPECT_EQ(scrape(port), "refused");
}

TEST(MetricsServer, OffAndBadAddresses) {
  Warnings warnings;
  const Metrics metrics(Labels{});
  EXPECT_FALSE(MetricsServer(metrics, kNoHistory, "off", warnings.warn).serving());
  EXPECT_TRUE(warnings.lines.empty());
  EXPECT_FALSE(MetricsServer(metrics, kNoHistory, "192.0.2.1:9", warnings.warn).serving());
  EXPECT_FALSE(MetricsServer(metrics, kNoHistory, "nonsense", warnings.warn).serving());
  EXPECT_EQ(warnings.lines.size(), 2U);
}

TEST(MetricsServer, HostsThatAreNoneAreNotServed) {
  for (const char* listen : {"nosuch.invalid:0", "256.1.1.1:0", "nosuch.invalid:9090", "1.2.3:x"}) {
    Warnings warnings;
    const Metrics metrics(Labels{});
    EXPECT_FALSE(MetricsServer(metrics, kNoHistory, listen, warnings.warn).serving()) << listen;
    ASSERT_EQ(warnings.lines.size(), 1U) << listen;
    EXPECT_THAT(warnings.lines[0], HasSubstr(listen));
  }
}

TEST(MetricsServer, TakesNames) {
  Warnings warnings;
  const Metrics metrics(Labels{});
  const MetricsServer server(metrics, kNoHistory, "localhost:0", warnings.warn);
  ASSERT_TRUE(server.serving());
  EXPECT_EQ(server.address(), "localhost:" + std::to_string(server.port()));
  EXPECT_THAT(scrape(server.port()), HasSubstr("anabranch_step"));
}

TEST(MetricsServer, OffersWhatItsLibraryCan) {
  const Metrics metrics(Labels{{"run", "a"}});
  Warnings warnings;
  EXPECT_FALSE(MetricsServer(metrics, kNoHistory, "[::1]:0", warnings.warn).serving());
  ASSERT_EQ(warnings.lines.size(), 1U);
  EXPECT_THAT(warnings.lines[0], HasSubstr("IPv6 is not supported"));
}

}  // namespace

}  // namespace anabranch
