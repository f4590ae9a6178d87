// Blocked attention of bfloat16 heads with the CPU's bfloat16 dot products, through oneDNN.
//
// The steps are those of attention_head.cpp, with key blocks of up to 512 and with p and ds rounded
// to bfloat16 before they enter a product; sums are float32.
#pragma once

#include <memory>

#include "core/ops/attention_head.h"

namespace anabranch::cpu {

class Bf16Heads {
 public:
  // Whether this CPU has such instructions and heads of this size gain from them.
  [[nodiscard]] static bool fits(int64_t keys, int64_t width);

  Bf16Heads(const Tensor& beside, int64_t keys, int64_t width);
  ~Bf16Heads();
  Bf16Heads(const Bf16Heads&) = delete;
  Bf16Heads& operator=(const Bf16Heads&) = delete;

  void forward(const HeadForward<Bf16>& head);
  void backward(const HeadBackward<Bf16>& head);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace anabranch::cpu
