#include "data/tokenizer/trainer.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "data/tokenizer/pair_merger.h"
#include "data/tokenizer/piece_counter.h"

namespace anabranch {
namespace {

// Text a thread takes at a time: enough to make the lock cheap.
constexpr std::size_t kBatchBytes = std::size_t{1} << 20U;

constexpr std::size_t kMergesPerReport = 256;

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = decode_utf8(text, i).second;
    if (size == 0) return false;
    i += size;
  }
  return true;
}

// Cuts `text` to at most `limit` characters and says how many are left.
std::uint64_t cut(std::string& text, std::uint64_t limit) {
  std::uint64_t characters = 0;
  std::size_t i = 0;
  for (; i < text.size() && characters < limit; ++characters) {
    i += std::max<std::size_t>(decode_utf8(text, i).second, 1);
  }
  text.resize(i);
  return characters;
}

void check_options(const TrainOptions& options) {
  const std::size_t least = 256 + options.specials.size();
  if (options.vocab_size < least) {
    throw config_error("vocabulary size ", options.vocab_size, " is too small: 256 bytes and ",
                       options.specials.size(), " special tokens need ", least);
  }
  for (std::size_t i = 0; i < options.specials.size(); ++i) {
    const auto at = options.specials.begin() + static_cast<std::ptrdiff_t>(i);
    if (at->empty() || !is_utf8(*at) || std::find(options.specials.begin(), at, *at) != at) {
      throw config_error("special token ", i, ", ", quote(*at),
                         ", is empty, repeated or not UTF-8");
    }
  }
}

// Hands out the documents to the threads that count them.
class Feed {
 public:
  Feed(const TrainOptions& options, const NextDocument& next) : options_(options), next_(next) {}

  // The next documents, cut as the options say; none at the end or after a failure.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> batch;
    std::string document;
    for (std::size_t bytes = 0; bytes < kBatchBytes && !done_ && read(document);) {
      bytes += document.size();
      batch.push_back(std::exchange(document, {}));
    }
    if (!batch.empty() && options_.progress) options_.progress(progress_);
    return batch;
  }

  // Keeps the first failure of any thread and ends the feed.
  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    done_ = true;
  }

  // After all threads: rethrows what failed.
  TrainProgress finish() {
    if (failure_) std::rethrow_exception(failure_);
    return progress_;
  }

 private:
  bool read(std::string& document) {
    done_ = !next_(document);
    if (done_) return false;
    constexpr auto kNoLimit = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t limit = options_.document_characters;
    if (limit == 0) limit = kNoLimit;
    if (options_.total_characters != 0) {
      limit = std::min(limit, options_.total_characters - characters_);
    }
    if (limit != kNoLimit) {
      characters_ += cut(document, limit);
      done_ = characters_ == options_.total_characters && options_.total_characters != 0;
    }
    ++progress_.documents;
    progress_.bytes += document.size();
    return true;
  }

  const TrainOptions& options_;
  const NextDocument& next_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  TrainProgress progress_;
  std::uint64_t characters_ = 0;
  bool done_ = false;
};

void count_pieces(Feed& feed, const Splitter& splitter, PieceCounter& counter) {
  try {
    for (auto batch = feed.take(); !batch.empty(); batch = feed.take()) {
      for (const std::string& document : batch) {
        splitter.for_each(document, [&](std::string_view piece) { counter.add(piece); });
      }
    }
  } catch (...) {
    feed.fail(std::current_exception());
  }
}

PieceCounter count_all(const TrainOptions& options, Feed& feed) {
  const Splitter splitter(options.pattern);
  const unsigned processors = std::max(std::thread::hardware_concurrency(), 1U);
  std::vector<PieceCounter> counters(options.threads == 0 ? processors : options.threads);
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < counters.size(); ++i) {
    threads.emplace_back([&, i] { count_pieces(feed, splitter, counters[i]); });
  }
  count_pieces(feed, splitter, counters[0]);
  threads.clear();  // joins them
  for (std::size_t i = 1; i < counters.size(); ++i) {
    counters[0].add(std::exchange(counters[i], {}));
  }
  return std::move(counters[0]);
}

}  // namespace

Vocabulary train_bpe(const TrainOptions& options, const NextDocument& next) {
  check_options(options);
  Feed feed(options, next);
  const PieceCounter pieces = count_all(options, feed);
  TrainProgress progress = feed.finish();
  progress.all_merges = options.vocab_size - 256 - options.specials.size();

  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  PairMerger merger(pieces);
  while (vocabulary.merges.size() < progress.all_merges) {
    const auto merge = merger.next(options.min_count);
    if (!merge) {
      throw data_error("the text (", progress.bytes, " bytes) gives only ",
                       vocabulary.merges.size(), " merges of the ", progress.all_merges,
                       " asked for; give more text or a vocabulary size of at most ",
                       vocabulary.tokens.size() + options.specials.size());
    }
    vocabulary.merges.push_back(*merge);
    vocabulary.tokens.push_back(vocabulary.tokens[merge->left] + vocabulary.tokens[merge->right]);
    progress.merges = vocabulary.merges.size();
    const bool last = progress.merges == progress.all_merges;
    if (options.progress && (last || progress.merges % kMergesPerReport == 0)) {
      options.progress(progress);
    }
  }
  for (const std::string& special : options.specials) {
    vocabulary.specials.push_back(static_cast<TokenId>(vocabulary.tokens.size()));
    vocabulary.tokens.push_back(special);
  }
  return vocabulary;
}

}  // namespace anabranch
