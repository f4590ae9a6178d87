// A run's metrics as a TensorBoard event file: records of a length, protocol buffers, and
// checksums.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/run_series.h"

namespace anabranch {

// One value of a series of scalars.
struct ScalarEvent {
  std::string tag;
  int64_t step = 0;
  double seconds = 0;  // of training, for a wall time
  float value = 0;
};

// Tags are names of metrics.jsonl; "/SOURCE" follows where there are several sources, and "/L" or
// "/L/P" for a layer and a stream or expert, both from 0. Figures that are not there (null) have no
// event; steps rise. The time of an event is that of the logged step at or before it.
std::vector<ScalarEvent> scalar_events(const RunSeries& series);

// A TFRecord: uint64 length, its masked CRC-32C, the bytes, their masked CRC-32C; little-endian.
std::string tf_record(std::string_view bytes);

// A protocol buffer of tensorflow.Event with a scalar, wall_time being `seconds`.
std::string event_message(const ScalarEvent& event);

// The file: a record of the version ("brain.Event:2"), then one for each event. Its name has to
// have "tfevents" in it: kEventFile.
std::string event_file(const std::vector<ScalarEvent>& events);

inline constexpr std::string_view kEventFile = "events.out.tfevents.0000000000.anabranch";

}  // namespace anabranch
