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

// Elements [begin, begin + count) of the logical tensor, which has rows of `row` elements.
template <class T>
void fill_run(T* out, const Init& init, uint64_t key, int64_t row, int64_t begin, int64_t count) {
  // As the master is, then rounded.
  const auto rounded = [](double value) {
    return static_cast<T>(static_cast<Accumulator<T>>(value));
  };
  if (init.kind == Init::Kind::kConstant) {
    std::fill(out, out + count, rounded(init.value));
    return;
  }
  if (init.kind == Init::Kind::kIdentity) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = rounded((begin + i) / row == (begin + i) % row ? 1 : 0);
    }
    return;
  }
  for (int64_t i = 0; i < count;) {
    const auto at = static_cast<uint64_t>(begin + i);
    const std::array<double, 4> four = draw(init, philox(key, at / 4));
    for (size_t j = at % 4; j < 4 && i < count; ++j, ++i) out[i] = rounded(four[j]);
  }
}

// `to` holds the elements of this rank's part of `w` from element `first` on.
void fill(Tensor to, const Param& w, int64_t first, uint64_t key) {
  if (to.device().is_cuda()) {
    const Tensor host(to.shape(), to.dtype());
    fill(host, w, first, key);
    return to.copy_from(host);
  }
  const int64_t rows = w.shape.rank() > 0 ? std::max<int64_t>(w.global_shape[0], 1) : 1;
  const int64_t row = w.global_shape.count() / rows;
  dispatch(to.dtype(), [&]<class T>() {
    T* out = to.data<T>();
    parallel_for(to.count(), kGrain, [&](int64_t begin, int64_t end) {
      w.part().runs(first + begin, end - begin, [&](int64_t here, int64_t there, int64_t count) {
        fill_run(out + here - first, w.init, key, row, there, count);
      });
    });
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
  const bool whole = w.master.count() == w.shape.count();
  AB_CHECK(!w.master.empty() && (whole || w.value.shape() == w.shape), w.name,
           " has no master weights to initialise; allocate it first");
  const uint64_t key = mix_keys(seed, name_key(w.name));
  fill(w.master, w, w.master_begin, key);
  if (whole) {
    round_to_value(w);
  } else {  // nobody sends the rest of it
    fill(w.value, w, 0, key);
  }
}

void keep_value_in(Param& w, const std::shared_ptr<Pool>& pool) {
  w.value = w.value.copy_in(pool, "parameter");
  w.master = {};
}

void round_to_value(Param& w) {
  if (w.value.empty() || w.value.raw() == w.master.raw()) return;
  convert(w.value, w.master);
}

}  // namespace anabranch
