// Tokenizer timings, to set beside tiktoken's and Hugging Face's
// (tests/bench/peers/torch_tokenizers.py):
//   tokenizer_bench encode VOCAB_BPE ENCODER_JSON TEXT      MiB/s of one thread, median of 7
//   tokenizer_bench train TEXT VOCAB_SIZE THREADS JSON      seconds; documents are lines; saves
//   JSON
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/trainer.h"

namespace {

using anabranch::Tokenizer;

std::string read(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Clock {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

int encode(char** arguments) {
  const Clock load;
  const Tokenizer tokenizer = Tokenizer::from_gpt2(arguments[0], arguments[1]);
  std::printf("load %.0f ms\n", 1e3 * load.seconds());
  const std::string text = read(arguments[2]);
  anabranch::Encoder encoder = tokenizer.encoder();
  std::vector<anabranch::TokenId> ids;
  std::vector<double> seconds;
  for (int run = 0; run < 7; ++run) {
    ids.clear();
    const Clock clock;
    encoder.encode(text, ids);
    seconds.push_back(clock.seconds());
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("%zu bytes, %zu tokens, %.1f MiB/s\n", text.size(), ids.size(),
              static_cast<double>(text.size()) / seconds[seconds.size() / 2] / 1048576.0);
  return 0;
}

int train(char** arguments) {
  std::ifstream in(arguments[0], std::ios::binary);
  anabranch::TrainOptions options;
  options.vocab_size = std::strtoul(arguments[1], nullptr, 10);
  options.threads = static_cast<unsigned>(std::strtoul(arguments[2], nullptr, 10));
  options.pattern = anabranch::SplitPattern::kGpt2;
  options.specials = {"<|endoftext|>"};
  const Clock clock;
  options.progress = [&](const anabranch::TrainProgress& at) {
    if (at.merges <= 256 || at.merges == at.all_merges) {
      std::printf("%6.2f s  %zu bytes, %zu merges\n", clock.seconds(),
                  static_cast<std::size_t>(at.bytes), at.merges);
    }
  };
  const auto vocabulary = anabranch::train_bpe(options, [&](std::string& document) {
    if (!std::getline(in, document)) return false;
    document += '\n';
    return true;
  });
  std::printf("%zu tokens in %.2f s\n", vocabulary.tokens.size(), clock.seconds());
  Tokenizer("bench", vocabulary, options.pattern).save(arguments[3]);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string verb = count > 1 ? arguments[1] : "";
  if (verb == "encode" && count == 5) return encode(arguments + 2);
  if (verb == "train" && count == 6) return train(arguments + 2);
  std::puts("usage: see the head of tokenizer_bench.cpp");
  return 64;
}
