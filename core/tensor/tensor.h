// A dense row-major tensor: a shape, an element type and a reference-counted buffer.
//
// Copying a Tensor shares its buffer. A tensor remembers the pool that it came from, so an op
// allocates its outputs beside its inputs and no allocator is passed around. There are no strides
// and no operators: coarse ops take packed layouts.
//
// Elements may be on their way from another rank (expect()): whoever asks for them waits till they
// are here, so no reader needs to know.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/device.h"
#include "core/tensor/dtype.h"
#include "core/tensor/pool.h"
#include "core/tensor/shape.h"

namespace anabranch {

class Tensor {
 public:
  Tensor() = default;

  // Uninitialised, from `pool`, or from the plain heap of the CPU if that is null. `tag` is a
  // string literal that names the holder in memory reports.
  Tensor(Shape shape, DType type, const std::shared_ptr<Pool>& pool = nullptr,
         const char* tag = "untagged");

  template <class T>
  static Tensor of(Shape shape, const std::vector<T>& values) {
    Tensor t(shape, kDTypeOf<T>);
    AB_CHECK(t.count() == std::ssize(values), shape, " holds ", t.count(), " but got ",
             values.size());
    std::copy(values.begin(), values.end(), t.data<T>());
    return t;
  }

  // A new uninitialised tensor from the same pool as this one.
  [[nodiscard]] Tensor like(Shape shape, DType type, const char* tag) const {
    return {shape, type, pool(), tag};
  }

  [[nodiscard]] Tensor like(const char* tag) const { return like(shape_, dtype_, tag); }

  [[nodiscard]] bool empty() const { return buffer_ == nullptr; }

  [[nodiscard]] const Shape& shape() const { return shape_; }

  [[nodiscard]] int64_t dim(int axis) const { return shape_[axis]; }

  [[nodiscard]] int64_t count() const { return count_; }

  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(count_ * size_of(dtype_)); }

  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] Device device() const;

  [[nodiscard]] std::shared_ptr<Pool> pool() const;

  // The stream in whose order a kernel uses these elements: the pool's; null on the CPU.
  [[nodiscard]] CUstream_st* stream() const;

  // True if no other Tensor shares the buffer.
  [[nodiscard]] bool unique() const { return buffer_.use_count() == 1; }

  // True if both share one buffer.
  [[nodiscard]] bool shares(const Tensor& other) const { return buffer_ == other.buffer_; }

  // The elements; throws if T is not the element type or the memory is not the host's.
  template <class T>
  [[nodiscard]] T* data() {
    check_access(kDTypeOf<T>);
    return reinterpret_cast<T*>(raw());
  }

  template <class T>
  [[nodiscard]] const T* data() const {
    check_access(kDTypeOf<T>);
    return reinterpret_cast<const T*>(raw());
  }

  // The same for a kernel's arguments; throws if T is not the element type or the memory is not a
  // GPU's.
  template <class T>
  [[nodiscard]] T* device_data() {
    check_device_access(kDTypeOf<T>);
    return reinterpret_cast<T*>(raw());
  }

  template <class T>
  [[nodiscard]] const T* device_data() const {
    check_device_access(kDTypeOf<T>);
    return reinterpret_cast<const T*>(raw());
  }

  template <class T>
  [[nodiscard]] std::span<T> span() {
    return {data<T>(), static_cast<size_t>(count_)};
  }

  template <class T>
  [[nodiscard]] std::span<const T> span() const {
    return {data<T>(), static_cast<size_t>(count_)};
  }

  // The first byte, whatever the type and the device.
  [[nodiscard]] std::byte* raw() {
    arrive();
    return base_;
  }

  [[nodiscard]] const std::byte* raw() const {
    arrive();
    return base_;
  }

  // What is in the buffer is on its way. From now on whoever asks for elements of any tensor that
  // shares it calls `wait` first, each time and from any thread; null: all is here. Nobody else may
  // use the buffer during the call.
  void expect(std::function<void()> wait);

  // For those who bring it: the first byte, whether the elements are here or not.
  [[nodiscard]] std::byte* landing() { return base_; }

  [[nodiscard]] const std::byte* landing() const { return base_; }

  // A view of `shape.count()` elements from element `offset` on. Shares memory.
  [[nodiscard]] Tensor view(int64_t offset, Shape shape) const;

  // The same elements under another shape of equal count. Shares memory.
  [[nodiscard]] Tensor reshape(Shape shape) const;

  [[nodiscard]] Tensor clone(const char* tag = "clone") const;

  // A copy in the memory of `pool`, or on the plain heap of the CPU if that is null.
  [[nodiscard]] Tensor copy_in(const std::shared_ptr<Pool>& pool, const char* tag = "copy") const;

  // Itself, or if `other` is on another device a copy beside it.
  [[nodiscard]] Tensor beside(const Tensor& other) const;

  // Itself, or if it is on a GPU a copy in the host's memory, for which the host waits.
  [[nodiscard]] Tensor on_host() const { return device().is_cpu() ? *this : copy_in(nullptr); }

  void fill_zero();
  // Copies the elements of a tensor of equal count and type, from any device.
  void copy_from(const Tensor& from);

 private:
  struct Buffer;

  void check_access(DType type) const;
  void arrive() const;
  void check_device_access(DType type) const;

  std::shared_ptr<Buffer> buffer_;
  std::byte* base_ = nullptr;
  Shape shape_;
  int64_t count_ = 0;
  DType dtype_ = DType::kF32;
};

}  // namespace anabranch
