// Small models of the families that have variants.
#pragma once

#include "runtime/config/config.h"

namespace anabranch::test {

template <GateVariant kVariant>
void streams(Config& c) {
  c.model.type = ModelType::kCmollm;
  c.model.cmollm.variant = kVariant;
}

inline void token_choice(Config& c) {
  c.model.type = ModelType::kKappaMoe;
  c.model.kappa.experts = 4;
  c.model.kappa.moe_first = 1;
}

inline void expert_choice(Config& c) {
  c.model.type = ModelType::kMoepMsit;
  c.model.moep.windows = {5, 3, 7};
  c.model.moep.expert_width = 12;
  c.model.moep.expert_heads = 2;
  c.model.ffn_width = 0;
}

template <Selection kSelection>
void select(Config& c) {
  expert_choice(c);
  c.model.moep.select = kSelection;
}

}  // namespace anabranch::test
