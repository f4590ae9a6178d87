// A small web server that answers from memory. Nothing that a client sends, or fails to send, holds
// up other clients or the program.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace anabranch {

struct HttpPage {
  std::string type;  // of MIME
  std::string body;
};

// The page at a path ("/metrics"), or nothing if there is none. Paths come from anywhere: they are
// to be compared with known ones, and not used. Called on the server's threads, one at a time.
using HttpPages = std::function<std::optional<HttpPage>(const std::string& path)>;

// Answers GET without a body and refuses all else; a connection is closed after one answer, and
// after half a second in which its client neither sends nor takes anything. Connections beyond
// those that are served wait in a queue of fixed length. At most a hundred pages a second are made,
// and all threads of the server have a low priority, so that clients cannot take the cores from
// training.
class HttpServer {
 public:
  // Listens at "host:port", port 0 for any free one. Throws std::runtime_error with the reason if
  // it cannot: the port is taken, the host is unknown or not this machine.
  HttpServer(const std::string& listen, HttpPages pages);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The port that is really used.
  [[nodiscard]] int port() const;

 private:
  class Connections;
  std::unique_ptr<Connections> connections_;
};

}  // namespace anabranch
