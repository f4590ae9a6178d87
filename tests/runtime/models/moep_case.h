// Recorded cases of moep_msit, and small random models of it.
#pragma once

#include "core/nn/init.h"
#include "runtime/models/moep_msit.h"
#include "tests/runtime/models/family_case.h"

namespace anabranch::test {

inline SlotPosition position_of(const std::string& word) {
  return word == "compact" ? SlotPosition::kCompact : SlotPosition::kOriginal;
}

inline Selection selection_of(const std::string& word) {
  if (word == "ec_seq") return Selection::kEcSeq;
  if (word == "threshold") return Selection::kThreshold;
  if (word == "predictor") return Selection::kPredictor;
  return word == "token_choice" ? Selection::kTokenChoice : Selection::kEcBatch;
}

inline MoepOptions options_of(const Reference& ref, const std::string& name, DType type) {
  MoepOptions o;
  o.layers = ref.count("n_layer", name);
  o.width = ref.count("n_embd", name);
  o.heads = ref.count("n_head", name);
  o.context = ref.count("context", name);
  o.vocabulary = ref.count("vocab_size", name);
  o.ffn_width = ref.count("ffn", name);
  o.expert_ffn_width = ref.count("expert_ffn", name);
  o.compute = type;
  o.keys.windows = {5, 3, 2};
  o.keys.expert_width = ref.count("expert_width", name);
  o.keys.expert_heads = ref.count("expert_heads", name);
  o.keys.capacity = ref.number("capacity", name);
  o.keys.select = selection_of(ref.text("select", name));
  o.keys.pool_sequences = ref.count("batch", name);
  o.keys.order = ref.text("order", name) == "affinity" ? SlotOrder::kAffinity : SlotOrder::kTime;
  o.keys.segments =
      ref.text("segments", name) == "pool" ? SegmentScope::kPool : SegmentScope::kSequence;
  o.keys.rope_position = position_of(ref.text("rope_position", name));
  o.keys.window = position_of(ref.text("window", name));
  o.keys.windowed = ref.text("window", name) != "none";
  o.keys.aux_alpha = ref.number("balance_weight", name);
  o.keys.predictor_weight = ref.number("predictor_weight", name);
  o.keys.threshold_decay = ref.number("threshold_decay", name);
  return o;
}

inline bool is_threshold(const Buffer& b) { return b.name.ends_with("threshold"); }

// Thresholds that some pools have moved already.
inline void set_thresholds(Model& model, const std::function<Tensor(const std::string&)>& of) {
  model.visit_buffers([&](Buffer& b) {
    b.value.copy_from(is_threshold(b) ? of(b.name) : Tensor::of<double>({1}, {1}));
  });
}

inline void expect_thresholds(Model& model, const Reference& ref, const std::string& group,
                              Tolerance tolerance) {
  model.visit_buffers([&](Buffer& b) {
    if (is_threshold(b)) {
      expect_close(b.value, ref.real(group + b.name), tolerance, b.name.c_str());
    }
  });
}

inline constexpr int64_t kB = 3, kT = 9, kV = 17;

inline std::unique_ptr<Model> random_model(Selection select, const MoepKeys& keys = {},
                                           DType type = DType::kF64, bool recompute = false) {
  MoepOptions o;
  o.layers = 2, o.width = 8, o.heads = 2, o.context = kT, o.vocabulary = kV;
  o.ffn_width = 10, o.expert_ffn_width = 6;
  o.compute = type;
  o.recompute = recompute;
  o.keys = keys;
  o.keys.windows = {5, 3, 2};
  o.keys.expert_width = 12, o.keys.expert_heads = 3;
  o.keys.capacity = 1;
  o.keys.select = select;
  o.keys.pool_sequences = kB;
  auto model = std::make_unique<MoepMsit>(o);
  model->visit([&](Param& w) {
    allocate(w, accumulator_of(type));
    if (w.init.kind == Init::Kind::kNormal) w.init.value = 0.4F;
    initialise(w, 7);
  });
  set_thresholds(*model, [](const auto&) { return Tensor::of<double>({3}, {0.3, 0.35, 0.32}); });
  return model;
}

inline Tensor some_ids() {
  Tensor ids({kB, kT}, DType::kI32);
  for (int64_t i = 0; i < ids.count(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>((i * i + 5 * i + 3) % kV);
  }
  return ids;
}

}  // namespace anabranch::test
