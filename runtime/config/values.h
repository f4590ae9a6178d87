// The types of configuration values that are not plain numbers, words or switches.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/ops/gelu.h"
#include "data/shard/samples.h"

namespace anabranch {

// Each enum's values count from 0 in the order of its words.
enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda };
enum class ModelType : uint8_t { kGpt2, kCmollm, kParascale, kAltup, kMoepMsit, kKappaMoe };
enum class Precision : uint8_t { kFp32, kBf16, kFp64 };
enum class GradWire : uint8_t { kFp32, kBf16 };
enum class StreamLayoutChoice : uint8_t { kAuto, kGather, kSlice };
enum class ScheduleForm : uint8_t { kCosine, kLinear, kConstant };
enum class MatrixOptimizer : uint8_t { kAdamw, kMuon, kAurora };
enum class MatrixScale : uint8_t { kAspect, kRms };
enum class Determinism : uint8_t { kRun, kLayout };
enum class Budget : uint8_t { kNone, kPaper, kAuthors };

// The largest of counts that have no natural bound.
inline constexpr int64_t kMaxCount = int64_t{1} << 50;

constexpr auto words_of(DeviceChoice) {
  return std::array<std::string_view, 3>{"auto", "cpu", "cuda"};
}

constexpr auto words_of(Packing) { return std::array<std::string_view, 2>{"windows", "best_fit"}; }

constexpr auto words_of(StreamLayoutChoice) {
  return std::array<std::string_view, 3>{"auto", "gather", "slice"};
}

constexpr auto words_of(ModelType) {
  return std::array<std::string_view, 6>{"gpt2",  "cmollm",    "parascale",
                                         "altup", "moep_msit", "kappa_moe"};
}

constexpr auto words_of(GeluForm) { return std::array<std::string_view, 2>{"tanh", "erf"}; }

constexpr auto words_of(Precision) {
  return std::array<std::string_view, 3>{"fp32", "bf16", "fp64"};
}

constexpr auto words_of(GradWire) { return std::array<std::string_view, 2>{"fp32", "bf16"}; }

constexpr auto words_of(Determinism) { return std::array<std::string_view, 2>{"run", "layout"}; }

constexpr auto words_of(ScheduleForm) {
  return std::array<std::string_view, 3>{"cosine", "linear", "constant"};
}

constexpr auto words_of(MatrixOptimizer) {
  return std::array<std::string_view, 3>{"adamw", "muon", "aurora"};
}

constexpr auto words_of(MatrixScale) { return std::array<std::string_view, 2>{"aspect", "rms"}; }

constexpr auto words_of(Budget) {
  return std::array<std::string_view, 3>{"none", "paper", "authors"};
}

// The word of an enum's value: word_of(Precision::kBf16) is "bf16".
template <class E>
constexpr std::string_view word_of(E value) {
  return words_of(value)[static_cast<size_t>(value)];
}

// A whole number, or "auto": the program chooses.
struct AutoInt {
  int64_t value = 0;  // 0: auto

  [[nodiscard]] bool is_auto() const { return value == 0; }

  bool operator==(const AutoInt&) const = default;
};

}  // namespace anabranch
