// The name of this machine.
#pragma once

#include <string>

namespace anabranch {

// As messages and other machines call it; "localhost" where the system does not tell.
std::string host_name();

}  // namespace anabranch
