#include "monitoring/http_server.h"

#include <atomic>
#include <deque>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http.h"

namespace anabranch {

namespace {

using test::http_get;
using test::HttpClient;
using testing::HasSubstr;
using testing::StartsWith;

class HttpServerTest : public testing::Test {
 protected:
  [[nodiscard]] std::string ask(const std::string& request) const {
    const HttpClient client(server_.port());
    return client.say(request) ? client.hear() : "not taken";
  }

  std::atomic<int> asked_ = 0;
  HttpServer server_{"127.0.0.1:0", [this](const std::string& path) -> std::optional<HttpPage> {
                       ++asked_;
                       if (path == "/a") return HttpPage{"text/plain", "the page"};
                       if (path == "/large")
                         return HttpPage{"text/plain", std::string(8 << 20, 'x')};
                       if (path == "/fault") throw std::runtime_error("cannot be made");
                       return std::nullopt;
                     }};
};

TEST_F(HttpServerTest, AnswersAPageAndCloses) {
  const std::string answer = http_get(server_.port(), "/a?query=1");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(answer, testing::EndsWith("\r\n\r\nthe page"));
  EXPECT_THAT(http_get(server_.port(), "/large"), testing::SizeIs(testing::Gt(8 << 20)));
}

TEST_F(HttpServerTest, RefusesAllElse) {
  EXPECT_THAT(http_get(server_.port(), "/b"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(http_get(server_.port(), "/fault"), StartsWith("HTTP/1.1 500"));
  asked_ = 0;
  for (const char* method : {"HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    EXPECT_THAT(ask(std::string(method) + " /a HTTP/1.1\r\nHost: a\r\n\r\n"),
                StartsWith("HTTP/1.1 405"))
        << method;
  }
  EXPECT_THAT(ask("GET /a HTTP/1.1\r\nContent-Length: 9\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask("GET /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
              StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(asked_, 0);
}

// The working directory and the root have files that a server of files would show.
TEST_F(HttpServerTest, NoPathReachesTheFileSystem) {
  for (const char* path :
       {"/etc/passwd", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
        "/..%5c..%5cetc/passwd", "/CMakeCache.txt", "/.", "/a/../../etc/passwd"}) {
    EXPECT_THAT(http_get(server_.port(), path), testing::ContainsRegex("^HTTP/1.1 40[04] "))
        << path;
  }
}

// Some send nothing, some half a request, some a letter now and then, some a body without an end,
// some do not read: more than there are threads and places in the queue.
TEST_F(HttpServerTest, ClientsThatStallDoNotHoldUpOthers) {
  std::deque<HttpClient> stalled;
  const std::vector<std::string> beginnings{
      "", "GET /a HT",
      "GET /a HTTP/1.1\r\nX: ", "POST /a HTTP/1.1\r\nContent-Length: 999999999\r\n\r\nx",
      "GET /large HTTP/1.1\r\n\r\n"};
  for (int i = 0; i < 60; ++i) {
    stalled.emplace_back(server_.port());
    ASSERT_TRUE(stalled.back().say(beginnings[static_cast<size_t>(i) % beginnings.size()]));
  }
  std::atomic<bool> done = false;
  std::thread dripping([&] {
    while (!done) {
      for (const HttpClient& client : stalled) static_cast<void>(client.say("y"));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  for (int i = 0; i < 3; ++i) EXPECT_THAT(http_get(server_.port(), "/a"), HasSubstr("the page"));
  done = true;
  dripping.join();
}

TEST_F(HttpServerTest, FiftyClientsAreAllAnswered) {
  std::atomic<int> answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 50; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 2; ++k) answered += http_get(server_.port(), "/a").ends_with("the page");
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 100);
}

TEST_F(HttpServerTest, EndsWhileClientsStall) {
  // Those that no thread had come to are only closed with the process: civetweb forgets them.
  constexpr int kPatience = 1;
  std::deque<HttpClient> stalled;
  {
    const HttpServer server("127.0.0.1:0", [](const std::string&) { return std::nullopt; });
    for (int i = 0; i < 60; ++i) stalled.emplace_back(server.port(), kPatience);
  }
  for (const HttpClient& client : stalled) EXPECT_EQ(client.hear(), "");
}

TEST(HttpServerAddress, WhatCannotBeServedIsNamed) {
  EXPECT_THROW(HttpServer("nonsense", {}), std::runtime_error);
  EXPECT_THROW(HttpServer("192.0.2.1:9", {}), std::runtime_error);
}

}  // namespace

}  // namespace anabranch
