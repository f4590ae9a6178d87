// From which checkpoint a run goes on, and what has changed since.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/group.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/state.h"
#include "runtime/config/config.h"

namespace anabranch {

enum class Resume : uint8_t {
  kAuto,  // from the newest good checkpoint, or from the start if there is none
  kMust,  // there must be one
  kNever  // there must be none
};

struct ResumeWish {
  const CheckpointDirectory& checkpoints;
  std::string run;  // the run directory, for messages
  Resume how;
  const Config& config;                             // of this run
  const std::map<std::string, std::string>& facts;  // of this run: ranks, threads, build, config
};

// Removes the remains of killed jobs and fills `items` from the newest good checkpoint, if there is
// one and it may be used. Collective; all ranks return the same.
//
// `tell` hears of every checkpoint that was passed over, and of what differs from the run that
// wrote the one taken. Throws Error: usage (64) if `how` forbids it, config (78) if the model
// computes something else (another shape, number of heads, GELU or epsilon), data (65) if none is
// good.
std::optional<Manifest> find_checkpoint(const ResumeWish& wish, Group& world,
                                        const std::vector<StateItem>& items,
                                        const std::function<void(const std::string&)>& tell);

}  // namespace anabranch
