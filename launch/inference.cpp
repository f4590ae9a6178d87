#include "launch/inference.h"

#include <CLI/CLI.hpp>

#include "launch/options.h"

namespace anabranch {

void add_model_options(CLI::App& verb, ModelWish& wish) {
  verb.add_option("PATH", wish.path, "run directory or checkpoint")->required();
  add_whole(verb, "--step", wish.step, {}, "which checkpoint; default: the newest good one");
  constexpr auto kWords = words_of(DeviceChoice{});
  add_word(
      verb, "--device", {kWords.begin(), kWords.end()}, "",
      [&wish](size_t place) { wish.device = static_cast<DeviceChoice>(place); },
      "where to compute; default: as the run's configuration says");
}

LoadedModel load_on_device(const ModelWish& wish, RankProcess& process) {
  LoadedModel loaded = find_model(wish.path, wish.step);
  loaded.config.device = wish.device.value_or(loaded.config.device);
  DeviceWish device = inference_wish(loaded.config);
  device.instead = "give --device cpu";
  process.take_device(device);
  process.say_device();
  process.require(weights_memory(*loaded.model, process.context().device));
  load_weights(loaded, process.context().pool);
  return loaded;
}

}  // namespace anabranch
