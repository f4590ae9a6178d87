#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "runtime/interchange/safetensors.h"

namespace anabranch {
namespace {

const char* safetensors_type(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kF64:
      return "F64";
    case DType::kBF16:
      return "BF16";
    default:
      AB_FAIL("no safetensors type for ", name_of(type));
  }
}

std::vector<StateItem> widest_first(std::vector<StateItem> tensors) {
  std::ranges::stable_sort(tensors, std::greater<>(),
                           [](const StateItem& item) { return size_of(item.value.dtype()); });
  return tensors;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<StateItem>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  const std::vector<StateItem> items = widest_first(tensors);
  size_t end = 0;
  for (const StateItem& item : items) {
    const size_t begin = end;
    end += item.value.bytes();
    header[item.name] = {
        {"dtype", safetensors_type(item.value.dtype())},
        {"shape", std::vector<int64_t>(item.value.shape().begin(), item.value.shape().end())},
        {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors begin at a multiple of 8
  const auto length = static_cast<uint64_t>(text.size());

  AtomicFile file(path);
  file.reserve(static_cast<int64_t>(sizeof length + text.size() + end));
  file.write(0, &length, sizeof length);
  auto at = static_cast<int64_t>(sizeof length);
  file.write(at, text.data(), text.size());
  at += static_cast<int64_t>(text.size());
  for (const StateItem& item : items) {
    file.write(at, item.value.raw(), item.value.bytes());
    at += static_cast<int64_t>(item.value.bytes());
  }
  file.commit();
}

}  // namespace anabranch
