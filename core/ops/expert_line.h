// The slots of one expert as a line, and what the row of each sees of it. For kernels too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/ops/expert_rows.h"

namespace anabranch {

// How an expert's rows are laid out, with the window of that expert; 0: none.
struct LineForm {
  int64_t segment_rows, window;
  bool compact_rope, compact_window;
};

// What attention is told of a row. Keys are counted within the expert.
struct RowOfLine {
  int32_t position, first_key, last_key;
};

// The slots of an expert by index, whose places in the batch ascend.
struct ExpertLine {
  const int32_t* source;   // of its first slot
  const int32_t* numbers;  // of a row in the batch; null: 0, 1, ..
  int32_t count;

  // Where the row of slot i stands in the batch.
  [[nodiscard]] constexpr int64_t number(int32_t i) const {
    const int32_t row = source[i];
    return numbers == nullptr ? row : numbers[row];
  }

  // How many slots stand before this place of the batch.
  [[nodiscard]] constexpr int32_t before(int64_t place) const {
    int32_t begin = 0, end = count;
    while (begin < end) {
      const int32_t middle = begin + (end - begin) / 2;
      if (number(middle) < place) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  // The i-th row of the attention, which has slot `slot` of the line: the same in time, another one
  // of its segment by affinity.
  [[nodiscard]] constexpr RowOfLine row(int32_t i, int32_t slot, const LineForm& form) const {
    const int64_t place = number(slot), segment = place / form.segment_rows * form.segment_rows;
    const int32_t begin = before(segment), end = before(segment + form.segment_rows);
    RowOfLine row{form.compact_rope ? i - begin : static_cast<int32_t>(place - segment), begin,
                  end - 1};
    if (form.window == 0) return row;
    if (!form.compact_window) {
      row.first_key = std::max(begin, before(place - form.window + 1));
      row.last_key = std::min(end, before(place + form.window)) - 1;
      return row;
    }
    // A window may be wider than all rows.
    const auto window = static_cast<int32_t>(std::min<int64_t>(form.window, end - begin));
    row.first_key = std::max(begin, i - window + 1);
    row.last_key = std::min(end - 1, i + window - 1);
    return row;
  }
};

}  // namespace anabranch
