// The ops of a step that only some families have.
#pragma once

#include "runtime/bench/op_timer.h"
#include "runtime/config/config.h"

namespace anabranch {

// Times those of the configured family, but for the ones that every family or GPT-2 has.
void time_family_ops(OpTimer& timer, const Config& config);

}  // namespace anabranch
