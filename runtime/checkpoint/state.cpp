#include "runtime/checkpoint/state.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/error.h"

namespace anabranch {

std::vector<size_t> stored_by(int rank, const std::vector<StateItem>& items) {
  std::vector<size_t> mine;
  std::map<Holders, std::vector<size_t>> loads;  // bytes dealt to each holder
  for (size_t i = 0; i < items.size(); ++i) {
    const StateItem& item = items[i];
    const int place = item.holders.place_of(rank);
    AB_CHECK(place >= 0, "rank ", rank, " lists ", item.name, ", which it does not hold");
    if (item.sharded) {
      if (item.value.count() > 0 || item.part.count() == 0) mine.push_back(i);
      continue;
    }
    std::vector<size_t>& load = loads[item.holders];
    load.resize(static_cast<size_t>(item.holders.count));
    const auto least = std::ranges::min_element(load);
    *least += item.value.bytes();
    if (least - load.begin() == place) mine.push_back(i);
  }
  return mine;
}

std::vector<Run> runs_of(const Part& part, int64_t from, int64_t count) {
  std::vector<Run> runs;
  part.runs(from, count, [&](int64_t here, int64_t there, int64_t together) {
    runs.push_back({here - from, there, together});
  });
  return runs;
}

void check_finite(const std::string& name, const Tensor& value) {
  if (value.dtype() == DType::kI64) return;
  dispatch(value.dtype(), [&]<class T>() {
    const Tensor here = value.on_host();
    const T* v = here.data<T>();
    for (int64_t i = 0; i < value.count(); ++i) {
      if (!std::isfinite(static_cast<Accumulator<T>>(v[i]))) {
        throw data_error(name, " holds a value that is not finite, at element ", i, " of ",
                         value.count());
      }
    }
  });
}

}  // namespace anabranch
