// How verbs print what a model weighs and computes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/models/model.h"

namespace anabranch {

// Names and whole numbers for JSON: parameters, non_embedding_parameters, and multiply-adds of a
// token: linear_macs, front_end_macs, attention_macs and their sum, macs.
std::vector<std::pair<std::string, int64_t>> cost_fields(const ModelCost& cost);

// The same as a line.
std::string cost_line(const ModelCost& cost);

}  // namespace anabranch
