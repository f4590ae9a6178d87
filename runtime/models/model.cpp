#include "runtime/models/model.h"

#include "core/base/error.h"

namespace anabranch {

namespace {

// The cache of `copies` of each sequence, chosen anew.
KvCache branched(const KvCache& cache, std::span<const int64_t> from, int64_t copies) {
  const int64_t before = std::ssize(cache.lengths) / copies, sequences = std::ssize(from);
  const int64_t room = cache.keys.dim(1), C = cache.keys.dim(2);
  const Shape shape{copies * sequences, room, C};
  KvCache next{cache.keys.like(shape, cache.keys.dtype(), "keys"),
               cache.values.like(shape, cache.values.dtype(), "values"),
               {}};
  for (int64_t i = 0; i < copies * sequences; ++i) {
    const int64_t source = i / sequences * before + from[static_cast<size_t>(i % sequences)];
    const int64_t length = cache.lengths[static_cast<size_t>(source)];
    next.lengths.push_back(length);
    if (length == 0) continue;
    const auto copy = [&](Tensor& to, const Tensor& of) {
      to.view(i * room * C, {length * C}).copy_from(of.view(source * room * C, {length * C}));
    };
    copy(next.keys, cache.keys);
    copy(next.values, cache.values);
  }
  return next;
}

RunningMean branched(const RunningMean& mean, std::span<const int64_t> from) {
  const int64_t C = mean.sums.dim(1);
  RunningMean next = mean;
  next.sums = mean.sums.like({std::ssize(from), C}, mean.sums.dtype(), "running mean");
  next.counts.clear();
  for (size_t i = 0; i < from.size(); ++i) {
    next.sums.view(static_cast<int64_t>(i) * C, {C}).copy_from(mean.sums.view(from[i] * C, {C}));
    next.counts.push_back(mean.counts[static_cast<size_t>(from[i])]);
  }
  return next;
}

}  // namespace

DecodeState empty_caches(const Tensor& beside, int64_t layers, int64_t batch, int64_t tokens,
                         int64_t width) {
  DecodeState state;
  for (int64_t l = 0; l < layers; ++l) {
    state.layers.push_back(make_kv_cache(beside, batch, tokens, width));
  }
  return state;
}

DecodeState branched(const DecodeState& state, std::span<const int64_t> from) {
  DecodeState next;
  next.copies = state.copies;
  for (const KvCache& cache : state.layers) {
    next.layers.push_back(branched(cache, from, state.copies));
  }
  for (const RunningMean& mean : state.running) next.running.push_back(branched(mean, from));
  for (const int64_t i : from) {
    if (!state.ids.empty()) next.ids.push_back(state.ids[static_cast<size_t>(i)]);
  }
  return next;
}

Tensor Model::decode(const Tensor& ids, std::span<const int64_t> new_tokens, DecodeState& state) {
  std::vector<int64_t> last;
  for (size_t b = 0; b < new_tokens.size(); ++b) {
    last.push_back(static_cast<int64_t>(b) * ids.dim(1) + new_tokens[b] - 1);
  }
  return head().logits(chosen_rows(decode_hidden(ids, new_tokens, state), last));
}

void check_sizes(const ModelSizes& s) {
  if (s.layers >= 1 && s.width >= 1 && s.heads >= 1 && s.context >= 1 && s.vocabulary >= 1) return;
  throw config_error("the model has layers ", s.layers, ", width ", s.width, ", heads ", s.heads,
                     ", context ", s.context, ", vocabulary ", s.vocabulary,
                     "; all must be at least 1");
}

}  // namespace anabranch
