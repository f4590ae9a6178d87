// Small models of the families that have variants.
#pragma once

#include "runtime/config/config.h"

namespace anabranch::test {

template <GateVariant kVariant>
void streams(Config& c) {
  c.model.type = ModelType::kCmollm;
  c.model.cmollm.variant = kVariant;
}

// On top of a variant: whole streams of layers that split and merge.
template <GateVariant kVariant>
void pipeline(Config& c) {
  streams<kVariant>(c);
  c.model.cmollm.mode = StreamMode::kPipeline;
  c.model.cmollm.streams = 2;
  c.model.cmollm.span = 1;
}

inline void copies(Config& c) {
  c.model.type = ModelType::kParascale;
  c.model.parascale = {2, 3, 0.01};
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

inline void two_experts(Config& c) {
  expert_choice(c);
  c.model.moep.windows = {5, 3};
  c.model.moep.capacity = 1;
}

template <Selection kSelection>
void select(Config& c) {
  expert_choice(c);
  c.model.moep.select = kSelection;
}

}  // namespace anabranch::test
