#include <algorithm>
#include <cstring>
#include <string_view>

#include "data/hdf5/parser.h"
#include "data/hdf5/parser_bytes.h"

namespace anabranch::hdf5 {
namespace {

constexpr uint64_t kMostHeap = uint64_t{1} << 24U, kMostText = 1U << 20U;

}  // namespace

// Section IV.A.2.b.
std::vector<uint64_t> Parser::read_space(Bytes& body) const {
  const unsigned version = body.byte(), rank = body.byte();
  if (version < 1 || version > 2) throw broken(join("dataspace version ", version));
  if (rank > 32) throw broken(join("a data set of ", rank, " axes"));
  body.skip(1);
  const bool null = version == 2 && body.byte() == 2;
  if (version == 1) body.skip(5);
  std::vector<uint64_t> extents;
  for (unsigned i = 0; i < rank; ++i) extents.push_back(body.number<uint64_t>());
  if (null) extents.assign(1, 0);
  return extents;
}

// Section IV.A.2.d.
Parser::Type Parser::read_type(Bytes body) const {
  const unsigned kind = body.byte() & 15U;
  const unsigned bits = body.byte(), sign_place = body.byte();
  body.skip(1);
  Type type;
  type.size = body.number<uint32_t>();
  const bool little = (bits & 0x41U) == 0;
  if (kind == 0) {
    const unsigned offset = body.number<uint16_t>(), precision = body.number<uint16_t>();
    if (!little || offset != 0 || precision != type.size * 8) return type;
    type.is_signed = (bits & 8U) != 0;
    type.kind = Type::kInteger;
    const Hdf5Type plain[] = {Hdf5Type::kU8, Hdf5Type::kU16, Hdf5Type::kU32, Hdf5Type::kU64};
    for (const Hdf5Type t : plain) {
      if (size_of(t) == static_cast<int64_t>(type.size)) type.element = t;
    }
    if (type.is_signed) {
      type.element = type.size == 4   ? Hdf5Type::kI32
                     : type.size == 8 ? Hdf5Type::kI64
                                      : Hdf5Type::kOther;
    }
    if (type.size > 8 || type.size == 0 || (type.size & (type.size - 1)) != 0) return {};
  } else if (kind == 1) {
    const auto layout = body.text(8);
    const auto bias = body.number<uint32_t>();
    using std::string_view_literals::operator""sv;
    const bool f32 = layout == "\0\0\x20\0\x17\x08\0\x17"sv && bias == 127 && sign_place == 31;
    const bool f64 = layout == "\0\0\x40\0\x34\x0b\0\x34"sv && bias == 1023 && sign_place == 63;
    if (!little || !(f32 || f64) || type.size != (f32 ? 4U : 8U)) return {};
    type.kind = Type::kReal;
    type.element = f32 ? Hdf5Type::kF32 : Hdf5Type::kF64;
  } else if (kind == 3) {
    type.kind = Type::kText;
  } else if (kind == 9 && (bits & 15U) == 1) {
    type.kind = Type::kHeapText;
  }
  return type;
}

// Section IV.A.2.m. Attributes of other kinds (arrays, compounds) are left out.
void Parser::read_attribute(Bytes body, const std::string& object) {
  const unsigned version = body.byte(), flags = body.byte();
  if (version < 1 || version > 3) throw broken(join("attribute version ", version));
  const uint64_t name_size = body.number<uint16_t>(), type_size = body.number<uint16_t>(),
                 space_size = body.number<uint16_t>();
  if (version == 3) body.skip(1);
  const bool padded = version == 1;
  std::string name(body.piece(name_size, padded).text(name_size));
  name.resize(std::min(name.size(), name.find('\0')));
  Bytes type_bytes = body.piece(type_size, padded), space_bytes = body.piece(space_size, padded);
  if (version > 1 && flags != 0) return;  // its type is kept elsewhere
  const Type type = read_type(std::move(type_bytes));
  for (const uint64_t extent : read_space(space_bytes)) {
    if (extent != 1) return;
  }
  Hdf5Attribute value;
  if (type.kind == Type::kInteger) {
    int64_t whole = 0;
    const std::string_view bytes = body.text(type.size);
    std::memcpy(&whole, bytes.data(), bytes.size());
    const auto unused = static_cast<unsigned>(64 - 8 * type.size);
    // The sign is spread over what the narrow number did not fill.
    if (type.is_signed)
      whole = static_cast<int64_t>(static_cast<uint64_t>(whole) << unused) >> unused;
    value = whole;
  } else if (type.kind == Type::kReal) {
    value = type.size == 4 ? double{body.number<float>()} : body.number<double>();
  } else if (type.kind == Type::kText) {
    std::string text(body.text(type.size));
    text.resize(std::min(text.size(), text.find('\0')));
    value = std::move(text);
  } else if (type.kind == Type::kHeapText) {
    value = read_heap_string(body);
  } else {
    return;
  }
  attributes_[{object, name}] = std::move(value);
}

// Section III.E.
std::string Parser::read_heap_string(Bytes& body) const {
  const uint64_t length = body.number<uint32_t>();
  const auto heap = body.number<uint64_t>();
  const auto wanted = body.number<uint32_t>();
  if (length == 0) return "";
  Bytes head = take(heap, 16);
  head.expect("GCOL");
  head.skip(4);
  const auto size = head.number<uint64_t>();
  if (size < 16 || size > kMostHeap) throw broken("a heap of strings is too large");
  for (Bytes objects = take(heap + 16, size - 16); objects.left() >= 16;) {
    const unsigned index = objects.number<uint16_t>();
    objects.skip(6);
    const auto bytes = objects.number<uint64_t>();
    if (index == 0) break;
    Bytes text = objects.piece(bytes, true);
    if (index != wanted) continue;
    if (length > kMostText) throw broken("a string is too long");
    return std::string(text.text(length));
  }
  throw broken("a string is missing");
}

}  // namespace anabranch::hdf5
