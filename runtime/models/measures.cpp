#include "runtime/models/measures.h"

#include "core/tensor/convert.h"
#include "core/tensor/element.h"

namespace anabranch {

void Measures::add(size_t place, const Tensor& values, double scale) {
  if (values.device().is_cuda()) {
    AB_CHECK(!there_.empty(), "figures of a GPU have no place to add up");
    Tensor to = there_.view(static_cast<int64_t>(place), {values.count()});
    return add_converted(to, values, scale);
  }
  for (int64_t i = 0; i < values.count(); ++i) {
    add(place + static_cast<size_t>(i), scale * element(values, i));
  }
}

void Measures::gather_in(const Tensor& there) {
  there_ = there;
  there_.fill_zero();
}

void Measures::collect(std::span<const double> seen) {
  for (size_t place = 0; place < seen.size(); ++place) add(place, seen[place]);
}

}  // namespace anabranch
