// Our values in prometheus-cpp's shape; for the sources of this folder only.
#pragma once

#include <vector>

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace anabranch {

class Metrics;

// One family per metric of the table, and run_info.
std::vector<prometheus::MetricFamily> collect_families(const Metrics& metrics);

}  // namespace anabranch
