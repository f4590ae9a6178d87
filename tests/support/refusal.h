// What a configuration or the like is refused with.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace anabranch::test {

// The message of the config error that `f` throws; "accepted" if it throws none.
template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kConfig) << error.what();
    return error.what();
  }
  return "accepted";
}

}  // namespace anabranch::test
