// Threads that tokenise batches of documents and give them back in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "data/shard/parts.h"

namespace anabranch {

// Documents on their way to be tokenised; the facts of `to` but for what encoding finds out.
struct TextBatch {
  PartBatch to;
  std::vector<std::string> documents;
  int64_t bytes = 0;
};

struct TokenBatch {
  PartBatch facts;
  std::vector<TokenId> tokens;
};

class EncodePool {
 public:
  // `first` begins every document, if it is given.
  EncodePool(const Tokenizer& tokenizer, std::optional<TokenId> first, int workers);
  ~EncodePool();
  EncodePool(const EncodePool&) = delete;
  EncodePool& operator=(const EncodePool&) = delete;

  void push(TextBatch batch);

  // The next batch in the order of `push`, if it is done or if `wait`; false if there is none.
  // Throws what a worker threw.
  bool pop(TokenBatch& batch, bool wait);

  // Batches pushed and not yet popped.
  [[nodiscard]] int64_t pending() const { return pushed_ - popped_; }

 private:
  void work();
  TokenBatch encode(Encoder& encoder, const TextBatch& from) const;

  const Tokenizer& tokenizer_;
  std::optional<TokenId> first_;
  std::mutex lock_;
  std::condition_variable more_, done_;
  std::queue<std::pair<int64_t, TextBatch>> waiting_;
  std::map<int64_t, TokenBatch> finished_;
  std::exception_ptr failure_;
  bool stop_ = false;
  int64_t pushed_ = 0, popped_ = 0;  // of the caller's thread
  std::vector<std::thread> threads_;
};

}  // namespace anabranch
