#include "data/shard/token_stream.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace anabranch {

TokenStream::TokenStream(std::vector<ShardReader> shards) : shards_(std::move(shards)) {
  for (const ShardReader& shard : shards_) begins_.push_back(begins_.back() + shard.tokens());
}

size_t TokenStream::shard_of(int64_t position) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<size_t>(after - begins_.begin()) - 1;
}

void TokenStream::read(int64_t first, int64_t count, int32_t* to) const {
  AB_CHECK(first >= 0 && count >= 0 && first <= tokens() && count <= tokens() - first, "tokens ",
           first, " to ", first + count, " of ", tokens());
  for (size_t i = shard_of(first); count > 0; ++i) {
    const int64_t part = std::min(count, begins_[i + 1] - first);
    shards_[i].read(first - begins_[i], part, to);
    first += part;
    to += part;
    count -= part;
  }
}

std::string TokenStream::where(int64_t position) const {
  if (position < 0 || position >= tokens()) return join("token ", position, " of ", tokens());
  const size_t i = shard_of(position);
  return join(shards_[i].path(), ", token ", position - begins_[i]);
}

std::vector<uint64_t> TokenStream::document_offsets() const {
  std::vector<uint64_t> all = {0};
  for (size_t i = 0; i < shards_.size(); ++i) {
    const std::vector<uint64_t> offsets = shards_[i].document_offsets();
    for (size_t d = 1; d < offsets.size(); ++d) {
      all.push_back(static_cast<uint64_t>(begins_[i]) + offsets[d]);
    }
  }
  return all;
}

void starts_of_documents(std::span<const uint64_t> document_offsets, int64_t first, int64_t count,
                         int32_t base, int32_t* to) {
  const auto place = static_cast<uint64_t>(first);
  auto next = std::upper_bound(document_offsets.begin(), document_offsets.end(), place);
  int32_t start = base;
  for (int32_t i = 0; i < count; ++i) {
    // Documents without tokens begin where the next one does.
    for (; next != document_offsets.end() && *next == place + static_cast<uint64_t>(i); ++next) {
      start = base + i;
    }
    to[i] = start;
  }
}

}  // namespace anabranch
