#include "runtime/models/cost_text.h"

#include <cmath>

#include "core/base/error.h"

namespace anabranch {

std::vector<std::pair<std::string, int64_t>> cost_fields(const ModelCost& cost) {
  return {{"parameters", cost.parameters},
          {"non_embedding_parameters", cost.non_embedding_parameters},
          {"linear_macs", std::llround(cost.linear_macs)},
          {"front_end_macs", std::llround(cost.front_end_macs)},
          {"attention_macs", std::llround(cost.attention_macs)},
          {"macs", std::llround(cost.macs())}};
}

std::string cost_line(const ModelCost& cost) {
  return join(cost.parameters, " parameters, ", cost.non_embedding_parameters,
              " without embeddings; multiply-adds of a token: ", std::llround(cost.linear_macs),
              " in linear maps, ", std::llround(cost.front_end_macs), " in front-ends, ",
              std::llround(cost.attention_macs), " in attention, ", std::llround(cost.macs()),
              " in all");
}

}  // namespace anabranch
