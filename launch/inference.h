// What eval and generate share: a checkpoint's model, on the device that the ranks compute on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/rank_process.h"
#include "runtime/loaded_model.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library names it
class App;
}  // namespace CLI

namespace anabranch {

// Which model, and where to run it.
struct ModelWish {
  std::string path;
  std::optional<int64_t> step;         // none: the newest good one
  std::optional<DeviceChoice> device;  // none: as the run's configuration says
};

// Declares PATH, --step and --device.
void add_model_options(CLI::App& verb, ModelWish& wish);

// Collective: finds the checkpoint, chooses the ranks' device as its run would and says which, and
// loads the weights there. Throws Error as find_model() and load_weights() do, and (config, 78) if
// the device asked for is not there or the model does not fit it.
LoadedModel load_on_device(const ModelWish& wish, RankProcess& process);

}  // namespace anabranch
