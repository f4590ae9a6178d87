#include "data/shard/encode_pool.h"

#include <utility>

#include "core/base/error.h"
#include "data/quiet_thread.h"

namespace anabranch {

EncodePool::EncodePool(const Tokenizer& tokenizer, std::optional<TokenId> first, int workers)
    : tokenizer_(tokenizer), first_(first) {
  for (int i = 0; i < workers; ++i) threads_.push_back(quiet_thread([this] { work(); }));
}

EncodePool::~EncodePool() {
  {
    const std::lock_guard hold(lock_);
    stop_ = true;
  }
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void EncodePool::push(TextBatch batch) {
  {
    const std::lock_guard hold(lock_);
    waiting_.emplace(pushed_++, std::move(batch));
  }
  more_.notify_one();
}

bool EncodePool::pop(TokenBatch& batch, bool wait) {
  if (pending() == 0) return false;
  std::unique_lock hold(lock_);
  const auto ready = [&] { return failure_ != nullptr || finished_.contains(popped_); };
  if (wait) done_.wait(hold, ready);
  if (!ready()) return false;
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  batch = std::move(finished_.extract(popped_).mapped());
  ++popped_;
  return true;
}

void EncodePool::work() {
  Encoder encoder = tokenizer_.encoder();
  for (;;) {
    std::unique_lock hold(lock_);
    more_.wait(hold, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const auto [number, batch] = std::move(waiting_.front());
    waiting_.pop();
    hold.unlock();
    try {
      TokenBatch tokens = encode(encoder, batch);
      hold.lock();
      finished_.emplace(number, std::move(tokens));
    } catch (...) {
      if (!hold.owns_lock()) hold.lock();
      failure_ = std::current_exception();
    }
    hold.unlock();
    done_.notify_all();
  }
}

TokenBatch EncodePool::encode(Encoder& encoder, const TextBatch& from) const {
  TokenBatch batch{from.to, {}};
  batch.tokens.reserve(static_cast<size_t>(from.bytes / 3));
  for (const std::string& document : from.documents) {
    const size_t begin = batch.tokens.size();
    if (first_) batch.tokens.push_back(*first_);
    encoder.encode(document, batch.tokens);
    batch.facts.lengths.push_back(static_cast<uint32_t>(batch.tokens.size() - begin));
    batch.facts.words.push_back(static_cast<uint32_t>(count_words(document)));
    batch.facts.text_bytes += std::ssize(document);
    if (!is_utf8(document)) ++batch.facts.invalid_utf8_documents;
  }
  return batch;
}

}  // namespace anabranch
