// How often each piece of text occurs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anabranch {

// Counts pieces in a table of its own; not for two threads at once. Counts of several counters add
// up to the same whatever the order.
class PieceCounter {
 public:
  PieceCounter() : slots_(kFirstSlots) {}

  // Counts `times` more of a piece, which is not empty.
  void add(std::string_view piece, std::uint64_t times = 1);

  // Adds all that another has counted.
  void add(const PieceCounter& other);

  // How many different pieces there are.
  [[nodiscard]] std::size_t size() const { return size_; }

  // Calls f(std::string_view piece, std::uint64_t count) with every piece, in no stated order.
  template <class F>
  void for_each(F&& f) const {
    for (const Slot& slot : slots_) {
      if (slot.count != 0) f(bytes(slot), slot.count);
    }
  }

 private:
  static constexpr std::size_t kFirstSlots = std::size_t{1} << 14U;

  struct Slot {
    std::uint64_t hash = 0;
    std::uint64_t count = 0;  // 0: the slot is free
    std::size_t begin = 0;    // in blob_
    std::size_t size = 0;
  };

  [[nodiscard]] std::string_view bytes(const Slot& slot) const {
    return std::string_view(blob_).substr(slot.begin, slot.size);
  }

  void grow();

  std::vector<Slot> slots_;
  std::string blob_;
  std::size_t size_ = 0;
};

}  // namespace anabranch
