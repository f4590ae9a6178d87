#include "monitoring/http_server.h"

#include <array>
#include <atomic>
#include <chrono>
#include <civetweb.h>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "core/base/error.h"
#include "monitoring/listen_address.h"

namespace anabranch {

namespace {

using Clock = std::chrono::steady_clock;

// A tenth of training's share of a core that both want: at the lowest priority ranks that spin
// while they wait would keep scrapers waiting too.
constexpr int kNice = 10;
constexpr auto kBetweenPages = std::chrono::milliseconds(10);

// A page may run its own script and ask its own host, nothing else.
constexpr std::string_view kHeaders =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\nConnection: close\r\n\r\n";

bool has_body(const mg_connection* client, const mg_request_info& request) {
  return request.content_length > 0 || mg_get_header(client, "Transfer-Encoding") != nullptr;
}

// Closes the connection without reading on: what would follow may never come. The library looks
// for no file, as it is told of no error pages. Returns the status, for its log.
int refuse(mg_connection* client, int status, const char* reason) {
  mg_send_http_error(client, status, "%s", reason);
  return status;
}

}  // namespace

// Civetweb parses requests and looks after connections; it is given each request before it would
// look at paths itself, so that none reaches the file system.
class HttpServer::Connections {
 public:
  Connections(const std::string& listen, HttpPages pages)
      : pages_(std::move(pages)), address_(listen_address(listen)) {
    const std::array<const char*, 13> options{
        "listening_ports",
        address_.c_str(),  // by numbers: it takes unknown hosts for any
        "num_threads",        "16",  "connection_queue",  "20", "listen_backlog", "128",
        "request_timeout_ms", "500", "enable_keep_alive", "no", nullptr};
    mg_callbacks callbacks{};
    callbacks.init_thread = &begin_thread;
    callbacks.begin_request = &answer;
    callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // not to stderr
    context_ = mg_start(&callbacks, this, const_cast<const char**>(options.data()));
    if (context_ == nullptr) throw std::runtime_error("it cannot be listened there");
    mg_server_port port{};
    if (mg_get_server_ports(context_, 1, &port) == 1) port_ = port.port;
    address_.replace(address_.rfind(':') + 1, std::string::npos, std::to_string(port_));
  }

  // The thread that accepts connections looks whether it should stop when one comes, or after two
  // seconds.
  ~Connections() {
    std::atomic<bool> stopped = false;
    std::thread visitor([&] {
      while (!stopped) {
        try {
          knock(address_);
        } catch (const std::runtime_error&) {  // then it takes the two seconds
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    mg_stop(context_);
    stopped = true;
    visitor.join();
  }

  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  [[nodiscard]] int port() const { return port_; }

 private:
  static void* begin_thread(const mg_context*, int) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);  // Linux: of this thread alone
    return nullptr;
  }

  static int answer(mg_connection* client) {
    const mg_request_info& request = *mg_get_request_info(client);
    auto& server = *static_cast<Connections*>(request.user_data);
    if (std::strcmp(request.request_method, "GET") != 0) return refuse(client, 405, "only GET");
    if (has_body(client, request)) return refuse(client, 400, "no body, please");
    try {
      const std::optional<HttpPage> page = server.page(request.local_uri);
      if (!page) return refuse(client, 404, "there is no such page");
      const std::string text =
          join("HTTP/1.1 200 OK\r\nContent-Type: ", page->type,
               "\r\nContent-Length: ", page->body.size(), "\r\n", kHeaders, page->body);
      mg_write(client, text.data(), text.size());
      return 200;
    } catch (const std::exception&) {
      return refuse(client, 500, "the page cannot be made");
    }
  }

  std::optional<HttpPage> page(const std::string& path) {
    const std::lock_guard turn(turn_);
    std::this_thread::sleep_until(next_);
    std::optional<HttpPage> made = pages_(path);
    next_ = Clock::now() + kBetweenPages;
    return made;
  }

  HttpPages pages_;
  std::string address_;
  mg_context* context_ = nullptr;
  int port_ = 0;
  std::mutex turn_;
  Clock::time_point next_;
};

HttpServer::HttpServer(const std::string& listen, HttpPages pages)
    : connections_(std::make_unique<Connections>(listen, std::move(pages))) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return connections_->port(); }

}  // namespace anabranch
