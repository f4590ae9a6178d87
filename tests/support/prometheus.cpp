#include "tests/support/prometheus.h"

#include <array>
#include <cctype>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/error.h"

namespace anabranch::test {
namespace {

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// One that nobody listens at just now.
int free_port() {
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  const bool got = bind(handle, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                   getsockname(handle, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(handle);
  return got ? ntohs(address.sin_port) : 0;
}

// As a part of an address.
std::string escaped(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      out += c;
    } else {
      out += {'%', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  return out;
}

std::string answer_of(int port, const std::string& target) {
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = loopback(port);
  std::string answer;
  if (connect(handle, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = "GET " + target + " HTTP/1.0\r\n\r\n";
    send(handle, request.data(), request.size(), MSG_NOSIGNAL);
    std::array<char, 4096> block{};
    for (ssize_t got = 0; (got = recv(handle, block.data(), block.size(), 0)) > 0;) {
      answer.append(block.data(), static_cast<size_t>(got));
    }
  }
  close(handle);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

}  // namespace

bool Prometheus::installed() { return std::system("prometheus --version >/dev/null 2>&1") == 0; }

Prometheus::Prometheus(const std::filesystem::path& config, const std::filesystem::path& folder)
    : port_(free_port()),
      process_({"prometheus", "--config.file=" + config.string(),
                "--storage.tsdb.path=" + (folder / "data").string(),
                join("--web.listen-address=127.0.0.1:", port_)},
               (folder / "prometheus.log").string()) {}

bool Prometheus::ready() const {
  return answer_of(port_, "/-/ready").find("is Ready") != std::string::npos;
}

nlohmann::json Prometheus::get(const std::string& what,
                               const std::vector<std::pair<std::string, std::string>>& keys) const {
  std::string target = "/api/v1/" + what;
  for (size_t i = 0; i < keys.size(); ++i) {
    target += join(i == 0 ? "?" : "&", escaped(keys[i].first), "=", escaped(keys[i].second));
  }
  auto answer = nlohmann::json::parse(answer_of(port_, target), nullptr, false);
  if (answer.is_discarded()) answer = {{"status", "unreachable"}};
  return answer;
}

nlohmann::json Prometheus::now(const std::string& expression) const {
  const nlohmann::json answer = get("query", {{"query", expression}});
  return answer.value("status", "") == "success" ? answer["data"]["result"]
                                                 : nlohmann::json::array();
}

}  // namespace anabranch::test
