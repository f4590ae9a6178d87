#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "core/tensor/bf16.h"
#include "runtime/interchange/safetensors.h"

namespace anabranch {
namespace {

static_assert(std::endian::native == std::endian::little);

// As long as the format's own library takes.
constexpr int64_t kLongestHeader = 100'000'000;
constexpr int64_t kChunk = 1 << 18;  // elements read at a time

// IEEE 754 half precision: a sign, 5 bits of exponent, 10 of fraction.
struct Half {
  uint16_t bits = 0;

  explicit operator float() const {
    const auto fraction = static_cast<float>(bits & 0x3FFU);
    const auto exponent = static_cast<int>((bits >> 10U) & 0x1FU);
    float magnitude = 0;
    if (exponent == 0x1F) {
      magnitude = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
      magnitude = std::ldexp(fraction, -24);
    } else {
      magnitude = std::ldexp(fraction + 1024, exponent - 25);
    }
    return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
  }
};

// Elements [from, from + count) of a tensor, of which `raw` are the bytes.
using Convert = void (*)(const std::byte* raw, int64_t count, int64_t from, Tensor& to);

template <class Stored>
void convert_elements(const std::byte* raw, int64_t count, int64_t from, Tensor& to) {
  dispatch(to.dtype(), [&]<class T>() {
    T* out = to.data<T>() + from;
    for (int64_t i = 0; i < count; ++i) {
      Stored element;
      std::memcpy(&element, raw + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
      using Wide = std::conditional_t<std::is_same_v<Stored, double>, double, float>;
      out[i] = T(static_cast<Accumulator<T>>(static_cast<Wide>(element)));
    }
  });
}

// Null if elements of that type are no weights.
Convert conversion(const std::string& type) {
  if (type == "F32") return convert_elements<float>;
  if (type == "F64") return convert_elements<double>;
  if (type == "F16") return convert_elements<Half>;
  return type == "BF16" ? convert_elements<Bf16> : nullptr;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  uint64_t length = 0;
  if (file_.size() < static_cast<int64_t>(sizeof length)) {
    throw data_error(path, " is of ", file_.size(), " bytes: no safetensors file is so short");
  }
  file_.read(0, &length, sizeof length);
  const int64_t rest = file_.size() - static_cast<int64_t>(sizeof length);
  if (length > static_cast<uint64_t>(rest)) {
    throw data_error(path, " begins with ", length, " as the length of its header, and only ", rest,
                     " bytes follow: it is truncated, or no safetensors file");
  }
  if (length > static_cast<uint64_t>(kLongestHeader)) {
    throw data_error(path, ": a header of ", length, " bytes is more than the ", kLongestHeader,
                     " that the format allows");
  }
  std::string text(length, '\0');
  file_.read(sizeof length, text.data(), text.size());
  const auto header_bytes = static_cast<int64_t>(length);
  data_begin_ = static_cast<int64_t>(sizeof length) + header_bytes;
  header_ = parse_safetensors_header(text, rest - header_bytes, path);
}

const SafetensorsEntry* SafetensorsReader::find(const std::string& name) const {
  const auto found = std::ranges::find(header_.entries, name, &SafetensorsEntry::name);
  return found == header_.entries.end() ? nullptr : &*found;
}

void SafetensorsReader::read(const SafetensorsEntry& entry, Tensor& to) const {
  const Convert convert = conversion(entry.type);
  if (convert == nullptr) {
    throw data_error(path(), ": tensor ", quote(entry.name), " is of type ", entry.type,
                     "; weights are F16, BF16, F32 or F64");
  }
  const int64_t count = to.count();
  AB_CHECK(count == entry.shape.count(), entry.name, " has ", entry.shape.count(),
           " elements, not ", count);
  const int64_t width = count == 0 ? 0 : entry.bytes / count;
  std::vector<std::byte> raw(static_cast<size_t>(std::min(count, kChunk) * width));
  for (int64_t from = 0; from < count; from += kChunk) {
    const int64_t here = std::min(kChunk, count - from);
    file_.read(data_begin_ + entry.offset + from * width, raw.data(),
               static_cast<size_t>(here * width));
    convert(raw.data(), here, from, to);
  }
  check_finite(join(path(), ": tensor ", quote(entry.name)), to);
}

}  // namespace anabranch
