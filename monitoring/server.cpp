#include "monitoring/server.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <netdb.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include "core/base/error.h"
#include "core/base/host_name.h"
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

struct FreeAddresses {
  void operator()(addrinfo* all) const { freeaddrinfo(all); }
};

using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& host, const std::string& port) {
  addrinfo wish{};
  wish.ai_family = AF_INET;  // the server in Debian's library has no other
  wish.ai_socktype = SOCK_STREAM;
  wish.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (!host.empty() && host.front() == '[') throw std::runtime_error("IPv6 is not supported");
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &wish, &found);
  if (failure != 0) {
    throw std::runtime_error(join("host ", host, ": ", gai_strerror(failure)));
  }
  return Addresses(found);
}

// "1.2.3.4:9".
std::string numeric(const addrinfo& address) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  getnameinfo(address.ai_addr, address.ai_addrlen, host.data(), host.size(), port.data(),
              port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  return join(host.data(), ":", port.data());
}

// 0, or the errno that keeps this process from listening there.
int listen_failure(const addrinfo& address) {
  const int handle = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return errno;
  const int yes = 1;  // as the server does: connections that linger do not count
  setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound = bind(handle, address.ai_addr, address.ai_addrlen) == 0;
  const int failure = bound && listen(handle, 1) == 0 ? 0 : errno;
  close(handle);
  return failure;
}

// The address by numbers at which this machine can listen. The library takes hosts that it cannot
// resolve for any address, and names no reason for what it refuses. Throws std::runtime_error.
std::string listening_address(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos) throw std::runtime_error("expected host:port");
  const Addresses all = resolve(listen.substr(0, colon), listen.substr(colon + 1));
  int failure = 0;
  for (const addrinfo* at = all.get(); at != nullptr; at = at->ai_next) {
    failure = listen_failure(*at);
    if (failure == 0) return numeric(*at);
  }
  throw std::runtime_error(std::strerror(failure));
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
    exposition_ = std::make_unique<Exposition>(metrics, listening_address(listen));
    const std::vector<int> ports = exposition_->exposer.GetListeningPorts();
    if (ports.empty()) throw std::runtime_error("no port is open");
    port_ = ports.front();
  } catch (const std::exception& failure) {
    exposition_.reset();
    warn(join("metrics.listen ", listen, " cannot be served (", failure.what(),
              "): no Prometheus endpoint in this run; give an address of this machine and a free "
              "port, or port 0 for any free one"));
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
