// A client of the loopback address that can behave as badly as a test likes.
#pragma once

#include <array>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace anabranch::test {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// One connection; receiving gives up after some seconds.
class HttpClient {
 public:
  explicit HttpClient(int port, int patience_seconds = 30)
      : handle_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{patience_seconds, 0};
    setsockopt(handle_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(handle_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const sockaddr_in to = loopback(port);
    connected_ = connect(handle_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }

  ~HttpClient() { close(handle_); }

  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }

  // Whether all of it was taken.
  [[nodiscard]] bool say(std::string_view text) const {
    return send(handle_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }

  // No more will come of this side.
  void finish() const { shutdown(handle_, SHUT_WR); }

  // All that the server says until it closes.
  [[nodiscard]] std::string hear() const {
    std::string answer;
    std::array<char, 4096> block{};
    for (ssize_t got = 0; (got = recv(handle_, block.data(), block.size(), 0)) > 0;) {
      answer.append(block.data(), static_cast<size_t>(got));
    }
    return answer;
  }

 private:
  int handle_;
  bool connected_ = false;
};

// The whole answer to a GET, headers included; "refused" if nobody listens.
inline std::string http_get(int port, const std::string& path) {
  const HttpClient client(port);
  if (!client.connected()) return "refused";
  return client.say("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n") ? client.hear() : "";
}

}  // namespace anabranch::test
