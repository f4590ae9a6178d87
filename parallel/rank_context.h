// What a rank has at hand, passed to whatever needs it: there are no globals, so that ranks can be
// threads of one process.
#pragma once

#include <memory>

#include "core/tensor/device.h"
#include "core/tensor/pool.h"
#include "parallel/heartbeat.h"

namespace anabranch {

class Log;
class Trace;

struct RankContext {
  int rank = 0;
  int size = 1;
  Device device;               // where its tensors are
  std::shared_ptr<Pool> pool;  // of all tensors of its steps
  int threads = 1;             // its share of the cores

  // Of what the host makes and looks at, as batches are: `pool`, or beside a GPU the plain heap.
  [[nodiscard]] std::shared_ptr<Pool> host_pool() const { return device.is_cpu() ? pool : nullptr; }

  Log* log = nullptr;      // outlives it; null: no log
  Trace* trace = nullptr;  // outlives it; null: no spans
  // Where it tells what it is doing.
  std::shared_ptr<Heartbeat> heartbeat = std::make_shared<Heartbeat>();
};

}  // namespace anabranch
