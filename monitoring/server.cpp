#include "monitoring/server.h"

#include <exception>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "monitoring/http_server.h"
#include "monitoring/run_page.h"

namespace anabranch {

namespace {

constexpr const char* kHtml = "text/html; charset=utf-8";

HttpPages pages_of(const Metrics& metrics, const RunHistory& history) {
  return [&](const std::string& path) -> std::optional<HttpPage> {
    if (path == "/metrics") return HttpPage{"text/plain; version=0.0.4", metrics.text()};
    if (path == "/") return HttpPage{kHtml, run_page(metrics, history)};
    if (path == "/utilisation") return HttpPage{kHtml, utilisation_page(metrics, history)};
    if (path == "/page.js") return HttpPage{"text/javascript", kPageScript};
    return std::nullopt;
  };
}

}  // namespace

MetricsServer::MetricsServer(const Metrics& metrics, const RunHistory& history,
                             const std::string& listen, const Warn& warn) {
  if (listen == "off") return;
  host_ = listen.substr(0, listen.rfind(':'));
  try {
    server_ = std::make_unique<HttpServer>(listen, pages_of(metrics, history));
  } catch (const std::exception& failure) {
    warn(join("metrics.listen ", listen, " cannot be served (", failure.what(),
              "): no Prometheus endpoint in this run; give an address of this machine and a free "
              "port, or port 0 for any free one"));
  }
}

MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return serving() ? server_->port() : 0; }

std::string MetricsServer::address() const {
  const bool everywhere = host_ == "0.0.0.0" || host_ == "[::]" || host_.empty();
  return (everywhere ? host_name() : host_) + ":" + std::to_string(port());
}

}  // namespace anabranch
