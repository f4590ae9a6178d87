#include "runtime/generator.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace anabranch {
namespace {

void check(const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& o) {
  const bool good = o.temperature >= 0 && std::isfinite(o.temperature) && o.top_k >= 0 &&
                    o.top_p > 0 && o.top_p <= 1 && o.max_tokens >= 0;  // a NaN is not good
  if (!good) {
    throw usage_error("temperature ", o.temperature, ", top-k ", o.top_k, ", top-p ", o.top_p,
                      ", tokens ", o.max_tokens,
                      ": expected temperature >= 0, top-k >= 0, 0 < top-p <= 1, tokens >= 0");
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) throw usage_error("prompt ", i, " is empty; give at least one token");
  }
}

// Uniform in [0, 1) for one token of one sequence.
double uniform(uint64_t seed, size_t sequence, size_t position) {
  return static_cast<double>(philox(seed, position, sequence)[0]) * 0x1.0p-32;
}

// One sequence being continued.
struct Sequence {
  std::vector<int32_t> window;  // what the model sees: prompt and new tokens, cut to the context
  size_t cached = 0;            // tokens of `window` that are in the cache
  std::vector<int32_t> output;
  bool done = false;
};

// A live sequence that outgrew the context goes on from its latest half. The cache starts over
// then, for all of them: it has no way to forget the tokens of one.
bool make_room(std::vector<Sequence>& sequences, size_t context) {
  const auto outgrown = [&](const Sequence& s) { return !s.done && s.window.size() > context; };
  if (std::ranges::none_of(sequences, outgrown)) return false;
  for (Sequence& s : sequences) {
    if (outgrown(s)) {
      const auto keep = static_cast<std::ptrdiff_t>(std::max<size_t>(context / 2, 1));
      s.window.erase(s.window.begin(), s.window.end() - keep);
    }
    s.cached = 0;
  }
  return true;
}

// The tokens that are not cached yet, padded at the right; a sequence that is done repeats its
// last token, which is then ignored.
Tensor pending(const std::vector<Sequence>& sequences, std::vector<int64_t>& counts) {
  int64_t longest = 1;
  counts.clear();
  for (const Sequence& s : sequences) {
    counts.push_back(std::max<int64_t>(std::ssize(s.window) - static_cast<int64_t>(s.cached), 1));
    longest = std::max(longest, counts.back());
  }
  Tensor ids({std::ssize(sequences), longest}, DType::kI32);
  ids.fill_zero();
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = sequences[i];
    std::copy_n(s.window.end() - counts[i], counts[i],
                ids.data<int32_t>() + static_cast<int64_t>(i) * longest);
  }
  return ids;
}

std::vector<float> row_of(const Tensor& logits, int64_t row) {
  std::vector<float> values(static_cast<size_t>(logits.dim(1)));
  dispatch(logits.dtype(), [&]<class T>() {
    const T* from = logits.data<T>() + row * logits.dim(1);
    std::transform(from, from + values.size(), values.begin(),
                   [](const T& v) { return static_cast<float>(static_cast<Accumulator<T>>(v)); });
  });
  return values;
}

// A token that may be picked. Weights are whole numbers, so their sums do not depend on an order.
struct Candidate {
  uint64_t weight;
  float logit;
  int32_t token;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

std::vector<Candidate> candidates_of(std::span<const float> logits, double top,
                                     double temperature) {
  constexpr double kOne = 0x1p38;  // the likeliest token's weight: 2^24 of them still add up
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double share = std::exp((static_cast<double>(logits[i]) - top) / temperature);
    candidates[i] = {static_cast<uint64_t>(kOne * share), logits[i], static_cast<int32_t>(i)};
  }
  return candidates;
}

uint64_t mass_of(std::span<const Candidate> candidates) {
  uint64_t mass = 0;
  for (const Candidate& c : candidates) mass += c.weight;
  return mass;
}

// How many of the likeliest candidates it takes to weigh `wanted`, at least one. They come to the
// front, the last of them in its place; the others are not sorted, which would take longer than
// the model does.
size_t lead(std::span<Candidate> candidates, uint64_t wanted) {
  size_t begin = 0, end = candidates.size();  // the count is above begin, and at most end
  for (uint64_t before = 0; end - begin > 1;) {
    const size_t middle = begin + (end - begin) / 2;
    const std::span<Candidate> part = candidates.subspan(begin, end - begin);
    std::nth_element(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(middle - begin),
                     part.end(), likelier);
    const uint64_t mass = before + mass_of(part.first(middle - begin));
    if (mass >= wanted) {
      end = middle;
    } else {
      begin = middle;
      before = mass;
    }
  }
  return end;
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingOptions& o, double uniform) {
  if (!std::ranges::all_of(logits, [](float v) { return std::isfinite(v); })) {
    throw data_error("the model gives logits that are not finite; its weights are no good");
  }
  const auto top = std::ranges::max_element(logits);  // the first of equal ones
  if (o.temperature == 0) return static_cast<int32_t>(top - logits.begin());
  std::vector<Candidate> candidates = candidates_of(logits, *top, o.temperature);
  const auto k = static_cast<size_t>(o.top_k);
  if (k > 0 && k < candidates.size()) {
    const auto last = candidates.begin() + o.top_k - 1;
    std::nth_element(candidates.begin(), last, candidates.end(), likelier);
    candidates.resize(k);
  }
  if (o.top_p < 1) {
    const double wanted = std::ceil(o.top_p * static_cast<double>(mass_of(candidates)));
    candidates.resize(lead(candidates, static_cast<uint64_t>(wanted)));
  }
  const double before = std::floor(uniform * static_cast<double>(mass_of(candidates)));
  return candidates[lead(candidates, static_cast<uint64_t>(before) + 1) - 1].token;
}

std::vector<std::vector<int32_t>> generate(
    Model& model, const std::vector<std::vector<int32_t>>& prompts, const SamplingOptions& options,
    const std::function<void(size_t, int32_t)>& on_token,
    const std::function<bool(size_t, std::span<const int32_t>)>& ends) {
  check(prompts, options);
  const auto context = static_cast<size_t>(model.context());
  std::vector<Sequence> sequences;
  sequences.reserve(prompts.size());
  for (const auto& prompt : prompts) sequences.push_back({prompt, 0, {}, false});
  const auto batch = std::ssize(sequences);
  // Room for a done sequence's repeated token beside the longest live one.
  const auto room = [&] { return model.decode_state(batch, 2 * model.context() + 1); };
  DecodeState state = room();
  std::vector<int64_t> counts;
  for (int64_t n = 0; n < options.max_tokens; ++n) {
    if (std::ranges::all_of(sequences, [](const Sequence& s) { return s.done; })) break;
    if (make_room(sequences, context)) {
      state = {};  // its memory is taken again
      state = room();
    }
    const Tensor ids = pending(sequences, counts);
    const Tensor logits = model.decode(ids, counts, state).on_host();
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = sequences[i];
      s.cached = s.window.size();
      if (s.done) continue;
      const int32_t token = sample(row_of(logits, static_cast<int64_t>(i)), options,
                                   uniform(options.seed, i, s.output.size()));
      s.done = token == options.stop_token;
      if (s.done) continue;
      s.window.push_back(token);
      s.output.push_back(token);
      if (on_token) on_token(i, token);
      s.done = ends && ends(i, s.output);
    }
  }
  std::vector<std::vector<int32_t>> outputs;
  outputs.reserve(sequences.size());
  for (Sequence& s : sequences) outputs.push_back(std::move(s.output));
  return outputs;
}

}  // namespace anabranch
