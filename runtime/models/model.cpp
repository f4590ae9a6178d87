#include "runtime/models/model.h"

#include "core/base/error.h"

namespace anabranch {

DecodeState empty_caches(const Tensor& beside, int64_t layers, int64_t batch, int64_t tokens,
                         int64_t width) {
  DecodeState state;
  for (int64_t l = 0; l < layers; ++l) {
    state.layers.push_back(make_kv_cache(beside, batch, tokens, width));
  }
  return state;
}

void check_sizes(const ModelSizes& s) {
  if (s.layers >= 1 && s.width >= 1 && s.heads >= 1 && s.context >= 1 && s.vocabulary >= 1) return;
  throw config_error("the model has layers ", s.layers, ", width ", s.width, ", heads ", s.heads,
                     ", context ", s.context, ", vocabulary ", s.vocabulary,
                     "; all must be at least 1");
}

}  // namespace anabranch
