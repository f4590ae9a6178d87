// The Prometheus endpoint, and the file by which Prometheus finds it. Neither may end a run: what
// goes wrong is a warning, and training goes on without it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "monitoring/metrics.h"

namespace anabranch {

using Warn = std::function<void(const std::string&)>;

class MetricsServer {
 public:
  // Serves `metrics` at http://listen/metrics from threads of its own.
  //
  //   metrics  must outlive the server
  //   listen   "host:port", port 0 for any free one, or "off"
  //   warn     called with the reason if it cannot be: the port is taken, the host is unknown or
  //            not this machine
  MetricsServer(const Metrics& metrics, const std::string& listen, const Warn& warn);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  [[nodiscard]] bool serving() const { return port_ != 0; }

  // The port that is really used; 0 if nothing is served.
  [[nodiscard]] int port() const { return port_; }

  // "host:port" for a scraper; this machine's name if all its addresses are served.
  [[nodiscard]] std::string address() const;

 private:
  struct Exposition;
  std::unique_ptr<Exposition> exposition_;
  std::string host_;
  int port_ = 0;
};

// A file for Prometheus' file_sd_configs, there as long as the object lives.
class TargetsFile {
 public:
  // Writes [{"targets": [address], "labels": {...}}] to `path` by a temporary file and a rename.
  TargetsFile(std::string path, const std::string& address, const Labels& labels, const Warn& warn);
  ~TargetsFile();
  TargetsFile(const TargetsFile&) = delete;
  TargetsFile& operator=(const TargetsFile&) = delete;

 private:
  std::string path_;
};

}  // namespace anabranch
