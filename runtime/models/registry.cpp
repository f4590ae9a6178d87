#include "runtime/models/registry.h"

#include "core/base/error.h"
#include "runtime/models/altup.h"
#include "runtime/models/cmollm.h"
#include "runtime/models/gpt2.h"
#include "runtime/models/kappa_moe.h"
#include "runtime/models/moep_msit.h"
#include "runtime/models/parascale.h"

namespace anabranch {
namespace {

Gpt2Options gpt2_options(const Config& config, int64_t vocabulary) {
  const ModelConfig& m = config.model;
  return {m.layers,
          m.width,
          m.heads,
          m.context,
          vocabulary,
          m.ffn_width,
          static_cast<float>(m.gpt2.dropout),
          m.gpt2.norm_eps,
          m.gpt2.gelu,
          m.recompute,
          compute_type(config.train.precision)};
}

KappaOptions kappa_options(const Config& config, int64_t vocabulary) {
  const ModelConfig& m = config.model;
  return {m.layers,
          m.width,
          m.heads,
          m.context,
          vocabulary,
          m.ffn_width,
          mixture_layers(m.kappa, m.layers),
          m.recompute,
          compute_type(config.train.precision)};
}

MoepOptions moep_options(const Config& config, int64_t vocabulary) {
  const ModelConfig& m = config.model;
  return {m.layers,  m.width,     m.heads,
          m.context, vocabulary,  m.ffn_width,
          0,         m.recompute, compute_type(config.train.precision),
          m.moep};
}

std::unique_ptr<Model> model_of(const Config& config, int64_t vocabulary, const Regions& regions) {
  const ModelConfig& m = config.model;
  switch (m.type) {
    case ModelType::kGpt2:
      return std::make_unique<Gpt2>(gpt2_options(config, vocabulary));
    case ModelType::kAltup:
      return std::make_unique<Altup>(gpt2_options(config, vocabulary), m.altup);
    case ModelType::kCmollm:
      return std::make_unique<Cmollm>(gpt2_options(config, vocabulary), m.cmollm, regions);
    case ModelType::kParascale:
      return std::make_unique<Parascale>(gpt2_options(config, vocabulary), m.parascale, regions);
    case ModelType::kKappaMoe:
      return std::make_unique<KappaMoe>(kappa_options(config, vocabulary), m.kappa, regions);
    case ModelType::kMoepMsit:
      return std::make_unique<MoepMsit>(moep_options(config, vocabulary), regions);
  }
  AB_FAIL("unknown model type ", static_cast<int>(m.type));
}

}  // namespace

DType compute_type(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return DType::kBF16;
    case Precision::kFp64:
      return DType::kF64;
    default:
      return DType::kF32;
  }
}

DType master_type(Precision precision) { return accumulator_of(compute_type(precision)); }

void check_data_fits(const Config& config, const Model& model) {
  if (!config.data.document_mask || model.masks_documents()) return;
  throw config_error("data.document_mask is true, and a ", word_of(config.model.type),
                     " model cannot keep documents apart: leave it false, or take another model");
}

std::unique_ptr<Model> make_model(const Config& config, int64_t vocabulary,
                                  const Regions& regions) {
  std::unique_ptr<Model> model = model_of(config, vocabulary, regions);
  check_data_fits(config, *model);
  return model;
}

}  // namespace anabranch
