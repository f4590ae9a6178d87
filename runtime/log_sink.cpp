#include "runtime/log_sink.h"

#include "core/base/error.h"

namespace anabranch {

void LogSink::step(const StepReport& r) {
  if (!r.skipped.empty()) {
    log_.warn(join("step ", r.step, " skipped: ", r.skipped, ", loss ", r.loss, ", gradient norm ",
                   r.grad_norm));
  }
  if (!r.logged) return;
  log_.info(join("step ", r.step, " of ", r.total_steps, ": loss ", r.loss, ", ", r.seconds,
                 " s: compute ", r.compute_seconds.median, ", communication ",
                 r.comm_seconds.median, " (", r.hidden, " of it hidden), data ",
                 r.data_seconds.median));
}

void LogSink::eval(const EvalReport& r) {
  if (r.looks_ahead) {
    log_.info(join("validation ", r.source, " looking ahead at step ", r.step, ": loss ", r.loss,
                   " (sees the future: no headline figure)"));
    return;
  }
  log_.info(join("validation ", r.source, " at step ", r.step, ": loss ", r.loss,
                 ", bits per byte ", r.bits_per_byte));
}

void LogSink::save(const SaveReport& r) {
  if (r.ok) {
    log_.info(join("saved step ", r.step, ": ", r.bytes, " bytes in ", r.write_seconds, " s"));
  } else {
    log_.warn(join("saving step ", r.step, " failed: ", r.error));
  }
  log_.flush();
}

void LogSink::event(const std::string& kind, const std::string& text) {
  log_.info(kind + ": " + text);
  log_.flush();
}

}  // namespace anabranch
