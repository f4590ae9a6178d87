// The model families by name.
#pragma once

#include <memory>

#include "parallel/regions.h"
#include "runtime/config/config.h"
#include "runtime/models/model.h"

namespace anabranch {

// The model that a configuration describes, with no memory for its parameters yet.
// Throws Error (config, 78) if the sizes do not go together, or as check_data_fits.
//
//   regions  the ranks over which its streams or experts lie; the groups outlive it
std::unique_ptr<Model> make_model(const Config& config, int64_t vocabulary,
                                  const Regions& regions = {});

// Throws Error (config, 78) if the model cannot heed what the data section asks of it.
void check_data_fits(const Config& config, const Model& model);

// The type of activations and of matrices in a run, and of its master weights.
[[nodiscard]] DType compute_type(Precision precision);
[[nodiscard]] DType master_type(Precision precision);

}  // namespace anabranch
