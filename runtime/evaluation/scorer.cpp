#include "runtime/evaluation/scorer.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/error.h"

namespace anabranch {

namespace {

// Sharing less than this costs more calls than it saves tokens.
constexpr int64_t kLeastShared = 16;

// The tokens that all sequences of an item begin with, as far as none of them is scored and the
// first to be scored has one before it that is computed anew.
int64_t shared_length(const ScoreItem& item) {
  if (item.size() < 2) return 0;
  int64_t length = std::numeric_limits<int64_t>::max();
  for (const ScoredText& text : item) {
    const auto [here, there] = std::ranges::mismatch(text.tokens, item.front().tokens);
    length = std::min({length, text.begin - 1, static_cast<int64_t>(here - text.tokens.begin())});
  }
  return length < kLeastShared ? 0 : length;
}

int64_t longest(const ScoreItem& item) {
  int64_t most = 0;
  for (const ScoredText& text : item) most = std::max(most, text.end);
  return most;
}

// Rows of tokens, padded at the right.
struct Rows {
  Tensor ids;                   // [B, S]
  std::vector<int64_t> counts;  // [B]

  explicit Rows(const std::vector<std::span<const int32_t>>& rows) {
    int64_t width = 0;
    for (const auto& row : rows) {
      counts.push_back(std::ssize(row));
      width = std::max(width, std::ssize(row));
    }
    ids = Tensor({std::ssize(rows), width}, DType::kI32);
    ids.fill_zero();
    for (size_t b = 0; b < rows.size(); ++b) {
      std::ranges::copy(rows[b], ids.data<int32_t>() + static_cast<int64_t>(b) * width);
    }
  }
};

std::span<const int32_t> part(const ScoredText& text, int64_t from, int64_t to) {
  return std::span(text.tokens).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
}

// For each row, whether no token is likelier than its target, nor as likely with a lower id.
void add_likeliest(std::vector<bool>& likeliest, const Tensor& logits,
                   std::span<const int32_t> targets) {
  const int64_t V = logits.dim(1);
  dispatch(logits.dtype(), [&]<class T>() {
    const T* row = logits.data<T>();
    for (const int32_t target : targets) {
      const T* const most = std::max_element(row, row + V, [](T a, T b) {
        return static_cast<Accumulator<T>>(a) < static_cast<Accumulator<T>>(b);
      });
      likeliest.push_back(most - row == target);
      row += V;
    }
  });
}

// The same of all rows of x [N, C], whose logits would be too many at once.
std::vector<bool> likeliest_of(const Head& head, const Tensor& x,
                               std::span<const int32_t> targets) {
  constexpr int64_t kRows = 256;
  const int64_t C = x.dim(1);
  std::vector<bool> likeliest;
  for (int64_t n = 0; n < x.dim(0); n += kRows) {
    const int64_t rows = std::min(kRows, x.dim(0) - n);
    add_likeliest(likeliest, head.logits(x.view(n * C, {rows, C})).on_host(),
                  targets.subspan(static_cast<size_t>(n), static_cast<size_t>(rows)));
  }
  return likeliest;
}

}  // namespace

void check_causal(const Model& model) {
  if (model.has_causal_mode()) return;
  throw config_error("the model sees what comes later and has no causal mode, so there is no ",
                     "likelihood of a text given what comes before alone");
}

double TextScore::mean() const {
  return tokens > 0 ? nats / static_cast<double>(tokens) : std::numeric_limits<double>::quiet_NaN();
}

// Sequences computed side by side: whole items, all with something in common or none.
struct Scorer::Batch {
  std::vector<const ScoreItem*> items;
  std::vector<std::vector<TextScore>*> scores;
  std::vector<int64_t> shared;  // of each item
  int64_t sequences = 0, longest = 0;
};

ScoreItem Scorer::cut(const ScoreItem& item) {
  ScoreItem all = item;
  for (ScoredText& text : all) {
    const int64_t length = std::ssize(text.tokens);
    if (text.begin < 1 || text.begin > text.end || text.end > length) {
      throw data_error("tokens ", text.begin, " to ", text.end, " of a sequence of ", length,
                       " are to be scored; expected a range in it, after its first token");
    }
    for (const int32_t token : text.tokens) {
      if (token >= 0 && token < model_.vocabulary()) continue;
      throw data_error("token ", token, " is none of the model's, which has ", model_.vocabulary(),
                       ": encode with the run's tokenizer");
    }
    const int64_t over = text.end - 1 - model_.context();  // the last is a target alone
    if (over > 0 && over >= text.begin) {
      throw data_error(text.end - text.begin, " tokens are to be scored at once; the model's ",
                       "context has ", model_.context());
    }
    text.tokens.resize(static_cast<size_t>(text.end));
    counts_.truncated += text.cut || over > 0 ? 1 : 0;
    counts_.tokens += text.end - std::max<int64_t>(over, 0);
    if (over <= 0) continue;
    text.tokens.erase(text.tokens.begin(), text.tokens.begin() + over);
    text.begin -= over;
    text.end -= over;
  }
  return all;
}

DecodeState Scorer::begun(const Batch& batch) {
  const int64_t room = batch.longest;
  if (batch.shared.front() == 0) return model_.decode_state(batch.sequences, room);
  std::vector<std::span<const int32_t>> rows;
  std::vector<int64_t> from;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    rows.push_back(part(batch.items[i]->front(), 0, batch.shared[i]));
    from.insert(from.end(), batch.items[i]->size(), static_cast<int64_t>(i));
  }
  const Rows prefixes(rows);
  DecodeState state = model_.decode_state(std::ssize(rows), room);
  (void)model_.decode_hidden(prefixes.ids, prefixes.counts, state);
  const int64_t used = std::accumulate(batch.shared.begin(), batch.shared.end(), int64_t{0});
  counts_.computed += used;
  counts_.padding += prefixes.ids.count() - used;
  return branched(state, from);
}

void Scorer::score(const Batch& batch) {
  DecodeState state = begun(batch);
  std::vector<std::span<const int32_t>> rests;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    for (const ScoredText& text : *batch.items[i]) {
      // The last is a target alone; of a sequence of which nothing is scored any one will do.
      rests.push_back(part(text, batch.shared[i], std::max(text.end - 1, batch.shared[i] + 1)));
    }
  }
  const Rows rows(rests);
  const int64_t S = rows.ids.dim(1);
  std::vector<int64_t> chosen;
  std::vector<int32_t> targets;
  for (size_t i = 0, b = 0; i < batch.items.size(); ++i) {
    for (const ScoredText& text : *batch.items[i]) {
      for (int64_t t = text.begin; t < text.end; ++t) {
        chosen.push_back(static_cast<int64_t>(b) * S + t - 1 - batch.shared[i]);
        targets.push_back(text.tokens[static_cast<size_t>(t)]);
      }
      ++b;
    }
  }
  const int64_t used = std::accumulate(rows.counts.begin(), rows.counts.end(), int64_t{0});
  counts_.computed += used;
  counts_.padding += rows.ids.count() - used;
  if (chosen.empty()) return;

  const Tensor hidden = chosen_rows(model_.decode_hidden(rows.ids, rows.counts, state), chosen);
  const Tensor losses =
      model_.head().losses(hidden, Tensor::of({std::ssize(targets)}, targets)).on_host();
  std::vector<bool> likeliest(targets.size(), false);
  if (options_.greedy) likeliest = likeliest_of(model_.head(), hidden, targets);

  const std::vector<double> nats = [&] {
    std::vector<double> all;
    dispatch(losses.dtype(), [&]<class T>() {
      for (const T loss : losses.span<T>()) {
        all.push_back(static_cast<double>(static_cast<Accumulator<T>>(loss)));
      }
    });
    return all;
  }();
  size_t at = 0;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    for (size_t j = 0; j < batch.items[i]->size(); ++j) {
      TextScore& score = (*batch.scores[i])[j];
      const ScoredText& text = (*batch.items[i])[j];
      for (int64_t t = text.begin; t < text.end; ++t, ++at) {
        score.nats += nats[at];
        score.greedy = score.greedy && likeliest[at];
      }
      score.tokens = text.end - text.begin;
    }
  }
}

std::vector<std::vector<TextScore>> Scorer::score(std::span<const ScoreItem> items,
                                                  const std::function<void(size_t)>& progress) {
  check_causal(model_);
  std::vector<std::vector<TextScore>> scores;
  std::vector<ScoreItem> all;
  std::vector<int64_t> shared;
  const bool caches = !model_.decode_state(1, 1).layers.empty();
  for (const ScoreItem& item : items) {
    all.push_back(cut(item));
    scores.emplace_back(item.size());
    shared.push_back(options_.share && caches ? shared_length(all.back()) : 0);
  }
  // Those that share and those that do not apart, each from the longest to the shortest.
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if ((shared[a] > 0) != (shared[b] > 0)) return shared[a] > 0;
    return longest(all[a]) > longest(all[b]);
  });
  size_t done = 0;
  while (done < order.size()) {
    Batch batch;
    const size_t first = done;
    for (; done < order.size(); ++done) {
      const size_t i = order[done];
      const int64_t sequences = batch.sequences + std::ssize(all[i]);
      const int64_t length = std::max(batch.longest, longest(all[i]));
      const bool alike = (shared[i] > 0) == (shared[order[first]] > 0);
      if (done > first && (!alike || sequences * length > options_.batch_tokens)) break;
      batch.items.push_back(&all[i]);
      batch.scores.push_back(&scores[i]);
      batch.shared.push_back(shared[i]);
      batch.sequences = sequences;
      batch.longest = length;
    }
    if (batch.sequences > 0) score(batch);
    if (progress) progress(done);
  }
  return scores;
}

}  // namespace anabranch
