// Every point of a sweep at a size that two cores train in a second, for tests and trials.
#pragma once

#include "runtime/config/config.h"

namespace anabranch {

// Shrinks a model to a sixth of its layers and a sixteenth of its width, two heads and 16 tokens,
// and its run to 2 steps of 4 sequences with no saves but the last. The family, its variants and
// the number of streams, blocks and experts stay; windows are a quarter, pools at most 2.
void make_tiny(Config& config);

}  // namespace anabranch
