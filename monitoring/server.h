// The endpoint of a run: metrics for Prometheus, and pages for people. It may not end a run: what
// goes wrong is a warning, and training goes on without it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "monitoring/metrics.h"
#include "monitoring/run_history.h"

namespace anabranch {

using Warn = std::function<void(const std::string&)>;

class HttpServer;

class MetricsServer {
 public:
  // Serves `metrics` at http://listen/metrics, and pages of it and of `history` at / and
  // /utilisation, from threads of its own.
  //
  //   metrics, history  must outlive the server
  //   listen            "host:port", port 0 for any free one, or "off"
  //   warn              called with the reason if it cannot be: the port is taken, the host is
  //                     unknown or not this machine
  MetricsServer(const Metrics& metrics, const RunHistory& history, const std::string& listen,
                const Warn& warn);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  [[nodiscard]] bool serving() const { return server_ != nullptr; }

  // The port that is really used; 0 if nothing is served.
  [[nodiscard]] int port() const;

  // "host:port" for a scraper; this machine's name if all its addresses are served.
  [[nodiscard]] std::string address() const;

 private:
  std::unique_ptr<HttpServer> server_;
  std::string host_;
};

}  // namespace anabranch
