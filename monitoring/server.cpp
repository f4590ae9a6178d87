#include "monitoring/server.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include "core/base/error.h"
#include "monitoring/families.h"

namespace anabranch {

namespace {

class Source : public prometheus::Collectable {
 public:
  explicit Source(const Metrics& metrics) : metrics_(metrics) {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    return collect_families(metrics_);
  }

 private:
  const Metrics& metrics_;
};

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace

struct MetricsServer::Exposition {
  Exposition(const Metrics& metrics, const std::string& listen)
      : source(std::make_shared<Source>(metrics)), exposer(listen, 1) {
    exposer.RegisterCollectable(source);
  }

  std::shared_ptr<Source> source;
  prometheus::Exposer exposer;
};

MetricsServer::MetricsServer(const Metrics& metrics, const std::string& listen, const Warn& warn) {
  if (listen == "off") return;
  host_ = listen.substr(0, listen.rfind(':'));
  try {
    exposition_ = std::make_unique<Exposition>(metrics, listen);
    const std::vector<int> ports = exposition_->exposer.GetListeningPorts();
    if (ports.empty()) throw std::runtime_error("no port is open");
    port_ = ports.front();
  } catch (const std::exception&) {
    // The library's own text speaks of a null context whatever the reason was.
    exposition_.reset();
    warn(join("metrics.listen ", listen,
              " cannot be served (port taken, or not this machine's address): no Prometheus "
              "endpoint in this run; use port 0 for any free one"));
  }
}

MetricsServer::~MetricsServer() = default;

std::string MetricsServer::address() const {
  const bool everywhere = host_ == "0.0.0.0" || host_ == "[::]" || host_.empty();
  return (everywhere ? host_name() : host_) + ":" + std::to_string(port_);
}

TargetsFile::TargetsFile(std::string path, const std::string& address, const Labels& labels,
                         const Warn& warn)
    : path_(std::move(path)) {
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  for (const auto& [name, value] : labels) names[name] = value;
  const nlohmann::ordered_json document = {{{"targets", {address}}, {"labels", names}}};
  const std::string temporary = path_ + ".tmp";
  std::ofstream out(temporary, std::ios::trunc);
  out << document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  out.close();
  if (!out || std::rename(temporary.c_str(), path_.c_str()) != 0) {
    warn(join("cannot write ", path_, ": ", std::strerror(errno),
              "; Prometheus will not find this run by itself"));
    std::remove(temporary.c_str());
    path_.clear();
  }
}

TargetsFile::~TargetsFile() {
  if (!path_.empty()) std::remove(path_.c_str());
}

}  // namespace anabranch
