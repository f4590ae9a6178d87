// The pages beside /metrics: a run as HTML with SVG charts. They need no other host and read on a
// phone; without a script they load themselves anew.
#pragma once

#include <string>

#include "monitoring/metrics.h"
#include "monitoring/run_history.h"

namespace anabranch {

// What it does: loss, validation, tokens/s, MFU, where a step's time goes, time left.
std::string run_page(const Metrics& metrics, const RunHistory& history);

// What it uses: computing, communication, data, memory, GPUs, and how evenly a mixture's parts.
std::string utilisation_page(const Metrics& metrics, const RunHistory& history);

// monitoring/page/page.css, which is in each page, and page.js, which each asks for as /page.js.
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace anabranch
