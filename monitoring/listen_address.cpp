#include "monitoring/listen_address.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/error.h"

namespace anabranch {

namespace {

struct FreeAddresses {
  void operator()(addrinfo* all) const { freeaddrinfo(all); }
};

using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) throw std::runtime_error("expected host:port");
  const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
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

}  // namespace

std::string listen_address(const std::string& listen) {
  const Addresses all = resolve(listen);
  int failure = 0;
  for (const addrinfo* at = all.get(); at != nullptr; at = at->ai_next) {
    failure = listen_failure(*at);
    if (failure == 0) return numeric(*at);
  }
  throw std::runtime_error(std::strerror(failure));
}

void knock(const std::string& address) {
  const Addresses all = resolve(address);
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (handle < 0) return;
  // Whether it is taken does not matter: the call alone wakes who listens.
  [[maybe_unused]] const int taken = connect(handle, all->ai_addr, all->ai_addrlen);
  close(handle);
}

}  // namespace anabranch
