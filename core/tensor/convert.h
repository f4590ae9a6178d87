// The same values in another floating type.
#pragma once

#include "core/tensor/tensor.h"

namespace anabranch {

// to = from, element by element, rounded to to's type. Counts must be equal, and the device.
void convert(Tensor& to, const Tensor& from);

// to += scale * from, rounded once to to's type.
void add_converted(Tensor& to, const Tensor& from, double scale = 1);

// `from` itself if it has that type, else a new tensor beside it.
Tensor converted(const Tensor& from, DType type, const char* tag);

namespace cuda {

void convert(Tensor& to, const Tensor& from);
void add_converted(Tensor& to, const Tensor& from, double scale);

}  // namespace cuda
}  // namespace anabranch
