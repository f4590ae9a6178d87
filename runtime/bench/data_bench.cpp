#include "runtime/bench/data_bench.h"

#include <fstream>
#include <optional>
#include <thread>

#include "core/base/error.h"
#include "data/shard/dataset.h"
#include "data/tokenizer/trainer.h"
#include "runtime/bench/timing.h"

namespace anabranch {
namespace {

std::vector<std::string_view> cut(std::string_view text, size_t piece) {
  if (piece == 0) return {text};
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t line = text.find('\n', piece);
    const size_t size = line == std::string_view::npos ? text.size() : line + 1;
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

// One thread's encoder and what it made.
struct EncodeJob {
  Encoder encoder;
  std::vector<TokenId> ids = {};

  void run(const std::vector<std::string_view>& pieces) {
    ids.clear();
    for (const std::string_view piece : pieces) encoder.encode(piece, ids);
  }
};

}  // namespace

double EncodeBench::mib_per_second() const {
  return static_cast<double>(bytes) / 0x1p20 / median(seconds);
}

EncodeBench bench_encode(const Tokenizer& tokenizer, const std::string& text, size_t piece,
                         int threads, int rounds) {
  const std::vector<std::string_view> pieces = cut(text, piece);
  std::vector<EncodeJob> jobs;
  for (int i = 0; i < threads; ++i) jobs.push_back({tokenizer.encoder()});
  EncodeBench result{static_cast<int64_t>(text.size()), 0, pieces.size(), threads, {}};
  for (int round = 0; round < rounds; ++round) {
    const Stopwatch watch;
    {
      std::vector<std::jthread> others;
      for (int i = 1; i < threads; ++i) {
        others.emplace_back([&jobs, &pieces, i] { jobs[static_cast<size_t>(i)].run(pieces); });
      }
      jobs.front().run(pieces);
    }
    result.seconds.push_back(watch.seconds());
  }
  result.tokens = std::ssize(jobs.front().ids);
  return result;
}

VocabularyBench bench_vocabulary(const std::string& path, size_t entries, unsigned threads) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw data_error("cannot read ", path);
  VocabularyBench result;
  result.threads = threads;
  const Stopwatch watch;
  TrainOptions options;
  options.vocab_size = entries;
  options.threads = threads;
  options.pattern = SplitPattern::kGpt2;
  options.specials = {"<|endoftext|>"};
  const Vocabulary vocabulary = train_bpe(options, [&](std::string& document) {
    if (!std::getline(in, document)) return false;
    if (!in.eof()) document += '\n';
    result.bytes += static_cast<int64_t>(document.size());
    return true;
  });
  result.seconds = watch.seconds();
  result.entries = vocabulary.tokens.size();
  return result;
}

LoaderBench bench_loader(const std::string& folder, const LoaderOptions& options, int64_t batches,
                         int rounds) {
  LoaderBench result;
  const Stopwatch start;
  const Dataset dataset = Dataset::open(folder);
  Loader loader(dataset, options);
  result.tokens_per_batch = loader.next().inputs.count();
  result.start_seconds = start.seconds();
  // What was ready when the clock started would count for nothing.
  for (int i = 0; i < 2 * options.prefetch; ++i) loader.next();
  for (int round = 0; round < rounds; ++round) {
    const Stopwatch watch;
    for (int64_t i = 0; i < batches; ++i) loader.next();
    result.seconds.push_back(watch.seconds() / static_cast<double>(batches));
  }
  return result;
}

}  // namespace anabranch
