#include "data/tokenizer/piece_counter.h"

#include <utility>

#include "data/tokenizer/piece_key.h"

namespace anabranch {

void PieceCounter::add(std::string_view piece, std::uint64_t times) {
  const std::uint64_t hash = hash_bytes(piece);
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  for (; slots_[i].count != 0; i = (i + 1) & mask) {
    if (slots_[i].hash == hash && bytes(slots_[i]) == piece) {
      slots_[i].count += times;
      return;
    }
  }
  slots_[i] = {hash, times, blob_.size(), piece.size()};
  blob_ += piece;
  if (2 * ++size_ > slots_.size()) grow();
}

void PieceCounter::add(const PieceCounter& other) {
  other.for_each([this](std::string_view piece, std::uint64_t count) { add(piece, count); });
}

void PieceCounter::grow() {
  std::vector<Slot> larger(2 * slots_.size());
  const std::size_t mask = larger.size() - 1;
  for (const Slot& slot : slots_) {
    if (slot.count == 0) continue;
    std::size_t i = slot.hash & mask;
    while (larger[i].count != 0) i = (i + 1) & mask;
    larger[i] = slot;
  }
  slots_ = std::move(larger);
}

}  // namespace anabranch
