#include "runtime/planner/activations.h"

#include <algorithm>
#include <cmath>

#include "core/ops/gemm.h"
#include "core/ops/linear_cross_entropy.h"
#include "parallel/division.h"
#include "runtime/config/validate_parallel.h"
#include "runtime/models/registry.h"
#include "runtime/planner/bills.h"

namespace anabranch {
namespace {

double real(int64_t n) { return static_cast<double>(n); }

// The part of a whole that the fullest of the ranks has.
double fullest(int64_t parts, int ranks) {
  return real(Division{parts, ranks}.count(0)) / real(parts);
}

Sizes sizes_of(const Config& config, int64_t vocabulary, bool on_gpu) {
  const ModelConfig& m = config.model;
  const DType type = compute_type(config.train.precision);
  Sizes s;
  s.rows = real(config.train.micro_batch * m.context);
  s.sequences = real(config.train.micro_batch);
  s.C = real(m.width);
  s.F = real(m.ffn_width);
  s.H = real(m.heads);
  s.b = real(static_cast<int64_t>(size_of(type)));
  s.a = real(static_cast<int64_t>(size_of(accumulator_of(type))));
  s.layers = m.layers;
  const int64_t rows = config.train.micro_batch * m.context;
  const DType sums = accumulator_of(type);
  const int64_t chunk = on_gpu ? cuda::cross_entropy_rows(rows, vocabulary, sums)
                               : cpu::cross_entropy_rows(rows, vocabulary, sums);
  s.logits = real(chunk * ((vocabulary + 31) / 32 * 32)) * s.a;
  if (s.b < s.a && !on_gpu) {
    s.product = real(std::min(rows, cpu::kGemmRows)) * s.a;
    s.logits += real(std::min(chunk, cpu::kGemmRows)) * s.C * s.a;
  }
  return s;
}

// What layers of these kinds hold at most, run backward from the last one.
double peak_of(const StackBill& stack, bool recompute) {
  double held = stack.before, most = 0;
  for (const LayerBill& layer : stack.layers) {
    // A layer that is computed again has its output too.
    const double again = recompute ? layer.kept - layer.input + stack.output : 0;
    held += recompute ? layer.input : layer.kept;
    most = std::max(most, held + again + layer.backward);
  }
  return std::max(most, held + stack.behind + stack.head);
}

StackBill bill_of(const Config& config, const Sizes& s, const Layout& layout, RoutingShare share) {
  switch (config.model.type) {
    case ModelType::kGpt2:
      return gpt2_bill(s);
    case ModelType::kCmollm:
      return config.model.cmollm.mode == StreamMode::kFfn
                 ? cmollm_bill(s, config.model.cmollm, layout)
                 : pipeline_bill(s, config.model.cmollm, layout);
    case ModelType::kParascale:
      return parascale_bill(s, config.model.parascale, layout);
    case ModelType::kAltup:
      return altup_bill(s, config.model.altup);
    case ModelType::kMoepMsit:
      return moep_bill(s, config.model.moep,
                       {expert_slots(config, layout, share), remote_visits(config, layout),
                        experts_of_row(config.model)});
    case ModelType::kKappaMoe:
      return kappa_bill(s, config.model.kappa,
                        {expert_slots(config, layout, share), remote_visits(config, layout),
                         experts_of_row(config.model)});
  }
  return {};
}

int64_t experts_in(const ModelConfig& model) {
  return model.type == ModelType::kKappaMoe ? model.kappa.experts : std::ssize(model.moep.windows);
}

bool chooses_rows(const ModelConfig& model) {
  return model.type == ModelType::kMoepMsit && model.moep.select != Selection::kTokenChoice;
}

}  // namespace

double experts_of_row(const ModelConfig& model) {
  if (model.type == ModelType::kKappaMoe) return real(model.kappa.top_k);
  if (model.type != ModelType::kMoepMsit) return 0;
  const double c = model.moep.capacity;
  if (chooses_rows(model)) return std::min(c, real(std::ssize(model.moep.windows)));
  return std::max(1.0, std::round(c));
}

double expert_slots(const Config& config, const Layout& layout, RoutingShare share) {
  const ModelConfig& model = config.model;
  const double each = experts_of_row(model);
  if (each == 0) return 0;
  const double rows = real(config.train.micro_batch * model.context);
  const int m = layout.mesh.model;
  const int64_t E = experts_in(model);
  const double even = each * rows * m * fullest(E, m);
  if (share == RoutingShare::kEven || m == 1) return even;
  const auto here = real(Division{E, m}.count(0));
  if (!chooses_rows(model)) return rows * m * std::min(each, here);
  // An expert that chooses has a number of rows in a pool; the group's may be all of them.
  const double pool = real(pool_sequences(model) * model.context);
  const double taken = each / real(E) * std::max(pool, rows * m);
  return here * std::min(rows * m, taken);
}

double remote_visits(const Config& config, const Layout& layout) {
  const ModelConfig& model = config.model;
  const double each = experts_of_row(model);
  const int m = layout.mesh.model;
  if (each == 0 || m == 1) return 0;
  const int64_t E = experts_in(model);
  const Division division{E, m};
  double visits = 0;  // of all ranks, the own one among them
  for (int r = 0; r < m; ++r) {
    const int64_t here = division.count(r);
    double none = 1;  // of a row going to none of the rank's experts
    if (chooses_rows(model)) {
      none = std::pow(1 - each / real(E), real(here));
    } else {
      for (int64_t i = 0; i < std::llround(each); ++i) {
        none *= std::max(real(E - here - i), 0.0) / real(E - i);
      }
    }
    visits += 1 - none;
  }
  return visits * (m - 1) / m;
}

ActivationBytes activation_bytes(const Config& config, int64_t vocabulary, const Layout& layout,
                                 RoutingShare share) {
  const Sizes s = sizes_of(config, vocabulary, layout.on_gpu);
  const StackBill stack = bill_of(config, s, layout, share);
  ActivationBytes bytes;
  for (const LayerBill& layer : stack.layers) {
    bytes.kept += config.model.recompute ? layer.input : layer.kept;
    bytes.forwarded += layer.kept;
    bytes.regions += config.model.recompute ? 0 : layer.regions;
  }
  bytes.kept += stack.before + stack.behind;
  bytes.forwarded += stack.before + stack.behind;
  // Ids, targets and positions, int32.
  bytes.peak = peak_of(stack, config.model.recompute) + 3 * 4 * s.rows;
  return bytes;
}

}  // namespace anabranch
