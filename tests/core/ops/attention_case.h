// Attention by its equations, and bounds of what tokens see.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/base/philox.h"
#include "core/ops/attention.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace anabranch::test {

// The equations of the header, one sum at a time, on doubles: y and, for a given dy, dqkv.
struct Plain {
  std::vector<double> y, dqkv;
};

inline Plain plain_attention(const Tensor& qkv, const Tensor& dy, int64_t batch, int64_t heads,
                             const Tensor& first_key = {}, const Tensor& last_key = {}) {
  const int64_t tokens = qkv.dim(0) / batch, channels = qkv.dim(1) / 3, width = channels / heads;
  const std::vector<double> x = values(qkv), g = values(dy);
  Plain to{std::vector<double>(g.size()), std::vector<double>(x.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  for (int64_t bh = 0; bh < batch * heads; ++bh) {
    const int64_t row = bh / heads * tokens, column = bh % heads * width;
    // Part 0, 1, 2 is q, k, v.
    const auto at = [&](int64_t part, int64_t t, int64_t d) {
      return static_cast<size_t>((row + t) * 3 * channels + part * channels + column + d);
    };
    const auto out = [&](int64_t t, int64_t d) {
      return static_cast<size_t>((row + t) * channels + column + d);
    };
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t first = first_key.empty() ? 0 : first_key.data<int32_t>()[row + i];
      const int64_t last = last_key.empty() ? i : last_key.data<int32_t>()[row + i];
      std::vector<double> p(static_cast<size_t>(tokens)), dp(p.size());
      double sum = 0, delta = 0;
      for (int64_t j = first; j <= last; ++j) {
        double s = 0;
        for (int64_t d = 0; d < width; ++d) s += x[at(0, i, d)] * x[at(1, j, d)];
        sum += p[static_cast<size_t>(j)] = std::exp(s * scale);
      }
      for (int64_t j = first; j <= last; ++j) {
        const auto k = static_cast<size_t>(j);
        p[k] /= sum;
        for (int64_t d = 0; d < width; ++d) {
          to.y[out(i, d)] += p[k] * x[at(2, j, d)];
          dp[k] += g[out(i, d)] * x[at(2, j, d)];
          to.dqkv[at(2, j, d)] += p[k] * g[out(i, d)];
        }
        delta += p[k] * dp[k];
      }
      for (int64_t j = first; j <= last; ++j) {
        const double ds = p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta) * scale;
        for (int64_t d = 0; d < width; ++d) {
          to.dqkv[at(0, i, d)] += ds * x[at(1, j, d)];
          to.dqkv[at(1, j, d)] += ds * x[at(0, i, d)];
        }
      }
    }
  }
  return to;
}

struct Pass {
  Tensor y, dqkv;
};

inline Pass forward_and_back(const Tensor& qkv, const Tensor& dy, int64_t batch, int64_t heads,
                             const Tensor& first_key = {}, const Tensor& last_key = {},
                             const TestDevice& device = {"cpu", nullptr}) {
  const auto bound = [&](const Tensor& t) { return t.empty() ? t : device.place(t); };
  Tape tape;
  const Var x = tape.input(device.place(qkv));
  const Var y = attention(x, batch, heads, bound(first_key), bound(last_key));
  tape.backward(y, device.place(dy));
  return {y.value(), tape.take_grad(x)};
}

// Where the keys of each token begin: at its document (of up to `longest` tokens), or, for odd
// sequences, at a bound that moves on by up to 3 a token, now and then to the token itself.
inline Tensor random_first_keys(int64_t batch, int64_t tokens, uint32_t longest) {
  Tensor first({batch, tokens}, DType::kI32);
  for (int64_t b = 0; b < batch; ++b) {
    int64_t bound = 0, next = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const PhiloxBlock random = philox(7 + static_cast<uint64_t>(b), static_cast<uint64_t>(t));
      if (b % 2 == 1) {
        bound = random[0] % 50 == 0 ? t : std::min<int64_t>(t, bound + random[1] % 4 / 2);
      } else if (t == next) {
        bound = t;
        next = t + 1 + random[0] % longest;
      }
      first.data<int32_t>()[b * tokens + t] = static_cast<int32_t>(bound);
    }
  }
  return first;
}

// Where they end: the mirror image of that, of other sequences.
inline Tensor random_last_keys(int64_t batch, int64_t tokens, uint32_t longest) {
  const Tensor first = random_first_keys(batch + 1, tokens, longest);
  Tensor last({batch, tokens}, DType::kI32);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      last.data<int32_t>()[b * tokens + t] = static_cast<int32_t>(
          tokens - 1 - first.data<int32_t>()[(b + 1) * tokens + tokens - 1 - t]);
    }
  }
  return last;
}

}  // namespace anabranch::test
