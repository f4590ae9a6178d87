#include "core/base/error.h"
#include "runtime/models/cmollm.h"
#include "runtime/models/stream_merge.h"

namespace anabranch {
DecodeState Cmollm::decode_state(int64_t batch, int64_t tokens) const {
  AB_CHECK(copies_.alone(), "decoding needs all ", keys_.streams, " streams on one rank");
  const int64_t copies = pipeline() ? keys_.streams : 1;
  DecodeState state =
      empty_caches(tables_.tokens.value, options_.layers, copies * batch, tokens, options_.width);
  state.copies = copies;
  const size_t means = pipeline() ? spans_.size() * static_cast<size_t>(copies) : layers_.size();
  for (size_t i = 0; i < means; ++i) {
    state.running.emplace_back(tables_.tokens.value, batch, options_.width);
  }
  return state;
}

StreamContext Cmollm::cached(DecodeState& state, size_t unit,
                             std::span<const int64_t> new_tokens) const {
  return {[&mean = state.running[unit], new_tokens, form = mean_form(keys_)](const Var& v) -> Var {
            return prefix_mean_step(v.value(), new_tokens, mean, form);
          },
          [](const Var& y, const Var& /*gates*/) { return y; }};
}

Var Cmollm::decode_layers(const Var& start, std::span<const int64_t> new_tokens,
                          DecodeState& state) {
  Var x = start;
  for (size_t l = 0; l < layers_.size(); ++l) {
    x = layers_[l](x, cached_context(state.layers[l], options_.heads, new_tokens),
                   cached(state, l, new_tokens));
  }
  return x;
}

Var Cmollm::decode_spans(const Var& start, std::span<const int64_t> new_tokens,
                         DecodeState& state) {
  const auto N = static_cast<size_t>(keys_.streams);
  const std::vector<int64_t> counts = repeat_counts(new_tokens, keys_.streams);
  Var x = start;
  for (size_t j = 0; j < spans_.size(); ++j) {
    std::vector<StreamContext> contexts;
    for (size_t k = 0; k < N; ++k) contexts.push_back(cached(state, j * N + k, new_tokens));
    x = spans_[j].split(std::vector<Var>(N, x), contexts);
    const size_t first = j * static_cast<size_t>(span_layers_);
    for (size_t l = first; l < first + static_cast<size_t>(span_layers_) && l < blocks_.size();
         ++l) {
      x = blocks_[l](x, cached_context(state.layers[l], options_.heads, counts));
    }
    x = spans_[j].merge(x, contexts[0]);
  }
  return x;
}

Tensor Cmollm::decode_hidden(const Tensor& ids, std::span<const int64_t> new_tokens,
                             DecodeState& state) {
  const std::span<const int64_t> lengths = state.layers.front().lengths;
  const std::vector<int64_t> first(lengths.begin(), lengths.begin() + ids.dim(0));
  const Var x = tables_(nullptr, ids, first);
  const Var end =
      pipeline() ? decode_spans(x, new_tokens, state) : decode_layers(x, new_tokens, state);
  return ln_f_(end).value();
}

}  // namespace anabranch
