// The memory of each family's layers, op by op, in bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/family_config.h"
#include "runtime/planner/layout.h"

namespace anabranch {

// Sizes of one rank's micro-batch; doubles, for sums of bytes.
struct Sizes {
  double rows = 0, sequences = 0;  // M, B
  double C = 0, F = 0, H = 0;
  double b = 4, a = 4;  // bytes of the compute type and of its accumulator
  int64_t layers = 0;
  double logits = 0;   // bytes of the head's logits that exist at once, and of their gradient's
  double product = 0;  // bytes of a column of sums on their way to a narrower type

  // Bytes of so many activations and sums of every row.
  [[nodiscard]] double act(double columns) const { return rows * columns * b; }

  [[nodiscard]] double sum(double columns) const { return rows * columns * a; }
};

struct LayerBill {
  double kept = 0;      // captured by its ops until backward
  double input = 0;     // of that, what recomputation keeps
  double backward = 0;  // the most that its backward holds besides
  double regions = 0;   // of `kept`, what is here for other ranks
};

struct StackBill {
  double before = 0;  // kept before the layers
  double behind = 0;  // kept behind them
  double head = 0;    // that the final norm's output and the loss hold besides
  double output = 0;  // of a layer
  std::vector<LayerBill> layers;
};

// Rows and experts of a rank's part of a mixture.
struct Routed {
  double slots = 0;   // that its experts have
  double remote = 0;  // ranks besides its own that a row goes to
  double each = 0;    // experts of a row
};

StackBill gpt2_bill(const Sizes& s);
StackBill cmollm_bill(const Sizes& s, const CmollmKeys& keys, const Layout& layout);
StackBill pipeline_bill(const Sizes& s, const CmollmKeys& keys, const Layout& layout);
StackBill parascale_bill(const Sizes& s, const ParascaleKeys& keys, const Layout& layout);
StackBill altup_bill(const Sizes& s, const AltupKeys& keys);
StackBill moep_bill(const Sizes& s, const MoepKeys& keys, const Routed& routed);
StackBill kappa_bill(const Sizes& s, const KappaKeys& keys, const Routed& routed);

}  // namespace anabranch
