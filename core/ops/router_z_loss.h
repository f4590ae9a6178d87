// The loss that keeps router logits small, over M rows of E logits:
//
//   kPlain     loss = mean of lse(s)^2                       ds_e = dloss 2 lse p_e / M
//   kDemeaned  loss = mean of lse(s - m)^2 + m^2,  m = mean_e s
//              ds_e = dloss (2 lse(s - m) (p_e - 1 / E) + 2 m / E) / M
//
// with lse = log sum exp and p = softmax(s).
//
// Source: Zoph et al., "ST-MoE", 2022, equation 5.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

enum class ZLossForm : uint8_t { kPlain, kDemeaned };

// The loss as a scalar of the logits' type; attach_loss gives it its weight.
//
//   logits  [M, E]  float32 or float64
//   loss    [1]
//
// Keeps logits. Throws Error if they have no rows or another type.
Var router_z_loss(const Var& logits, ZLossForm form = ZLossForm::kPlain);

namespace cpu {

double router_z_loss_forward(const Tensor& logits, ZLossForm form);
void router_z_loss_backward(GradSink& dlogits, double dloss, const Tensor& logits, ZLossForm form);

}  // namespace cpu

namespace cuda {

void router_z_loss_forward(Tensor& loss, const Tensor& logits, ZLossForm form);
void router_z_loss_backward(GradSink& dlogits, const Tensor& dloss, const Tensor& logits,
                            ZLossForm form);

}  // namespace cuda
}  // namespace anabranch
