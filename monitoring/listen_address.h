// Where a server can listen.
#pragma once

#include <string>

namespace anabranch {

// "host:port" by numbers ("127.0.0.1:9464"), of IPv4, at which this machine can listen now. Port 0
// stays 0. Throws std::runtime_error with the reason if there is none.
std::string listen_address(const std::string& listen);

// Connects to such an address and hangs up; says nothing of what comes of it.
void knock(const std::string& address);

}  // namespace anabranch
