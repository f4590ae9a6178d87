#include "runtime/checkpoint/state.h"

#include <cmath>

namespace anabranch {

void check_finite(const std::string& name, const Tensor& value) {
  if (value.dtype() == DType::kI64) return;
  dispatch(value.dtype(), [&]<class T>() {
    const T* v = value.data<T>();
    for (int64_t i = 0; i < value.count(); ++i) {
      if (!std::isfinite(static_cast<Accumulator<T>>(v[i]))) {
        throw data_error(name, " holds a value that is not finite, at element ", i, " of ",
                         value.count());
      }
    }
  });
}

}  // namespace anabranch
