#include "core/nn/init.h"

#include "core/base/parallel_for.h"
#include "core/base/philox.h"
#include "core/tensor/convert.h"

namespace anabranch {
namespace {

constexpr int64_t kGrain = 1 << 12;

// The four values of one Philox block.
std::array<double, 4> draw(const Init& init, const PhiloxBlock& words) {
  const double value = init.value;
  std::array<double, 4> four{};
  if (init.kind == Init::Kind::kNormal) {
    for (size_t pair = 0; pair < 4; pair += 2) {
      const auto normals = normal_pair(words[pair], words[pair + 1]);
      four[pair] = value * normals[0];
      four[pair + 1] = value * normals[1];
    }
  } else {
    for (size_t i = 0; i < 4; ++i) {
      four[i] = value * (2.0 * static_cast<double>(words[i]) * 0x1.0p-32 - 1.0);
    }
  }
  return four;
}

template <class T>
void fill(Param& w, uint64_t key) {
  T* out = w.master.data<T>();
  const int64_t row = w.master.count() / std::max<int64_t>(w.shape.rank() > 0 ? w.shape[0] : 1, 1);
  const int64_t first = w.slice_begin * row;
  const Init init = w.init;
  parallel_for(w.master.count(), kGrain, [=](int64_t begin, int64_t end) {
    if (init.kind == Init::Kind::kConstant) {
      std::fill(out + begin, out + end, static_cast<T>(init.value));
      return;
    }
    if (init.kind == Init::Kind::kIdentity) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<T>((first + i) / row == (first + i) % row ? 1 : 0);
      }
      return;
    }
    for (int64_t i = begin; i < end;) {
      const auto at = static_cast<uint64_t>(first + i);
      const std::array<double, 4> four = draw(init, philox(key, at / 4));
      for (size_t j = at % 4; j < 4 && i < end; ++j, ++i) out[i] = static_cast<T>(four[j]);
    }
  });
}

}  // namespace

void set_compute(Param& w, DType type) {
  w.compute = w.shape.rank() >= 2 && !w.wide ? type : accumulator_of(type);
}

void allocate(Param& w, DType master_type, const std::shared_ptr<Pool>& pool) {
  AB_CHECK(accumulator_of(w.compute) == master_type, w.name, " computes in ", name_of(w.compute),
           " and needs a master of ", name_of(accumulator_of(w.compute)), ", not of ",
           name_of(master_type));
  w.master = Tensor(w.shape, master_type, pool, "master");
  w.value = w.compute == master_type ? w.master : Tensor(w.shape, w.compute, pool, "parameter");
}

void initialise(Param& w, uint64_t seed) {
  AB_CHECK(!w.master.empty() && w.master.shape() == w.shape, w.name,
           " has no master weights to initialise; allocate it first");
  const uint64_t key = mix_keys(seed, name_key(w.name));
  if (w.master.dtype() == DType::kF64) {
    fill<double>(w, key);
  } else {
    fill<float>(w, key);
  }
  round_to_value(w);
}

void round_to_value(Param& w) {
  if (w.value.empty() || w.value.raw() == w.master.raw()) return;
  convert(w.value, w.master);
}

}  // namespace anabranch
