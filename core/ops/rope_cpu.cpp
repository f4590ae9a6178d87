#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/build.h"
#include "core/base/parallel_for.h"
#include "core/ops/rope.h"

namespace anabranch::cpu {
namespace {

// cos and sin of position * frequency_i for any position, from few calls of cos and sin: a position
// is written in base 32, the angles of its digits are tabled, and angles are added by
//   cos(a + b) = cos a cos b - sin a sin b,  sin(a + b) = sin a cos b + cos a sin b.
class Angles {
 public:
  Angles(const RopeForm& form, int32_t highest) : half_(form.head_dim / 2) {
    std::vector<double> frequencies;
    for (int64_t i = 0; i < half_; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(half_);
      frequencies.push_back(std::pow(form.base, exponent));
    }
    int64_t unit = 1;
    do {
      const int64_t digits = std::min(highest / unit + 1, kBase);
      std::vector<double>& level = levels_.emplace_back(static_cast<size_t>(digits * 2 * half_));
      double* entry = level.data();
      for (int64_t digit = 0; digit < digits; ++digit, entry += half_) {
        for (const double frequency : frequencies) {
          const double angle = static_cast<double>(digit * unit) * frequency;
          entry[half_] = std::sin(angle);
          *entry++ = std::cos(angle);
        }
      }
      unit *= kBase;
    } while (unit <= highest);
  }

  // Writes cos [D/2] and sin [D/2] of one position; the sine times `sign`.
  template <class A>
  void at(int32_t position, A sign, A* cosines, A* sines) const {
    for (int64_t i = 0; i < half_; ++i) {
      double c = 1, s = 0;
      int64_t rest = position;
      for (const std::vector<double>& level : levels_) {
        const double* entry = level.data() + rest % kBase * 2 * half_ + i;
        const double next = c * entry[0] - s * entry[half_];
        s = s * entry[0] + c * entry[half_];
        c = next;
        rest /= kBase;
      }
      cosines[i] = static_cast<A>(c);
      sines[i] = sign * static_cast<A>(s);
    }
  }

 private:
  static constexpr int64_t kBase = 32;
  int64_t half_;
  std::vector<std::vector<double>> levels_;  // [digit][cos D/2, sin D/2], lowest digit first
};

template <class T>
struct Row {
  T* y;
  const T* x;
  const Accumulator<T>*cosines, *sines;
  int64_t heads, half;
};

template <class T>
[[gnu::always_inline]] inline void rotate_row(Row<T> k) {
  using A = Accumulator<T>;
  for (int64_t head = 0; head < k.heads; ++head) {
    const T *a = k.x + head * 2 * k.half, *b = a + k.half;
    T *to_a = k.y + head * 2 * k.half, *to_b = to_a + k.half;
#pragma GCC ivdep
    for (int64_t i = 0; i < k.half; ++i) {
      const A p = A(a[i]), q = A(b[i]), c = k.cosines[i], s = k.sines[i];
      to_a[i] = T(p * c - q * s);
      to_b[i] = T(p * s + q * c);
    }
  }
}

AB_CLONES void run(Row<float> k) { rotate_row(k); }

AB_CLONES void run(Row<Bf16> k) { rotate_row(k); }

void run(Row<double> k) { rotate_row(k); }

int32_t highest_of(const Tensor& positions) {
  int32_t highest = 0;
  for (const int32_t p : positions.span<int32_t>()) {
    AB_CHECK(p >= 0, "[rope] a position is ", p, "; positions must not be negative");
    highest = std::max(highest, p);
  }
  return highest;
}

}  // namespace

void rope(Tensor& y, const Tensor& x, const Tensor& positions, const RopeForm& form, bool back) {
  const bool minus = back != form.reversed;
  const Angles angles(form, highest_of(positions));
  const int64_t rows = x.dim(0), width = x.dim(1), half = form.head_dim / 2;
  const int64_t rotated = form.heads_q + form.heads_kv, skipped = rotated * 2 * half;
  const int32_t* position = positions.data<int32_t>();
  dispatch(x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    T* to = y.data<T>();
    const T* from = x.data<T>();
    const int64_t grain = std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(width, 1));
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      std::vector<A> turn(static_cast<size_t>(2 * half));
      for (int64_t row = begin; row < end; ++row) {
        angles.at<A>(position[row], minus ? A(-1) : A(1), turn.data(), turn.data() + half);
        const int64_t at = row * width;
        run(Row<T>{to + at, from + at, turn.data(), turn.data() + half, rotated, half});
        if (to != from) std::copy(from + at + skipped, from + at + width, to + at + skipped);
      }
    });
  });
}

}  // namespace anabranch::cpu
