#include "core/tensor/tensor.h"

#include <utility>

#include "core/tensor/memory.h"

namespace anabranch {

struct Tensor::Buffer {
  Buffer(size_t size, std::shared_ptr<Pool> from, const char* tag)
      : bytes(size), pool(std::move(from)) {
    block = pool ? pool->allocate(bytes, tag) : memory::allocate(Device{}, bytes);
    AB_CHECK(block != nullptr, "no memory for ", bytes, " bytes of '", tag, "'");
  }

  ~Buffer() {
    if (pool) {
      pool->release(block);
    } else {
      memory::release(Device{}, block, bytes);
    }
  }

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t bytes;
  std::shared_ptr<Pool> pool;
  void* block;
  std::function<void()> wait;
};

Tensor::Tensor(Shape shape, DType type, const std::shared_ptr<Pool>& pool, const char* tag)
    : shape_(shape), count_(shape.count()), dtype_(type) {
  buffer_ = std::make_shared<Buffer>(bytes(), pool, tag);
  base_ = static_cast<std::byte*>(buffer_->block);
}

Device Tensor::device() const {
  return buffer_ && buffer_->pool ? buffer_->pool->device() : Device{};
}

std::shared_ptr<Pool> Tensor::pool() const { return buffer_ ? buffer_->pool : nullptr; }

CUstream_st* Tensor::stream() const {
  return buffer_ && buffer_->pool ? buffer_->pool->stream().handle() : nullptr;
}

Tensor Tensor::view(int64_t offset, Shape shape) const {
  AB_CHECK(0 <= offset && offset + shape.count() <= count_, "a view of ", shape, " at ", offset,
           " leaves a tensor of ", count_, " elements");
  Tensor t(*this);
  t.base_ = base_ + offset * size_of(dtype_);
  t.shape_ = shape;
  t.count_ = shape.count();
  return t;
}

Tensor Tensor::reshape(Shape shape) const {
  AB_CHECK(shape.count() == count_, "cannot see ", shape_, " as ", shape);
  return view(0, shape);
}

Tensor Tensor::clone(const char* tag) const {
  Tensor t = like(tag);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::copy_in(const std::shared_ptr<Pool>& pool, const char* tag) const {
  Tensor t(shape_, dtype_, pool, tag);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::beside(const Tensor& other) const {
  const bool there = empty() || (device().is_cpu() == other.device().is_cpu());
  return there ? *this : copy_in(other.pool());
}

void Tensor::fill_zero() { memory::fill_zero(device(), raw(), bytes(), stream()); }

void Tensor::copy_from(const Tensor& from) {
  AB_CHECK(from.count_ == count_ && from.dtype_ == dtype_, "cannot copy ", name_of(from.dtype_),
           from.shape_, " to ", name_of(dtype_), shape_);
  CUstream_st *mine = stream(), *other = from.stream();
  AB_CHECK(mine == nullptr || other == nullptr || mine == other,
           "a copy between tensors of two GPU streams");
  if (mine != nullptr && other == nullptr) {
    pool()->stream().upload(raw(), from.raw(), bytes());
  } else if (mine == nullptr && other != nullptr) {
    from.pool()->stream().download(raw(), from.raw(), bytes());
  } else {
    memory::copy(device(), raw(), from.raw(), bytes(), mine);
  }
}

void Tensor::expect(std::function<void()> wait) { buffer_->wait = std::move(wait); }

void Tensor::arrive() const {
  if (buffer_ && buffer_->wait) buffer_->wait();
}

void Tensor::check_access(DType type) const {
  AB_CHECK(type == dtype_, "a tensor of ", name_of(dtype_), " was read as ", name_of(type));
  AB_CHECK(device().is_cpu(), "memory of a GPU was read from the host");
}

void Tensor::check_device_access(DType type) const {
  AB_CHECK(type == dtype_, "a tensor of ", name_of(dtype_), " was read as ", name_of(type));
  AB_CHECK(device().is_cuda(), "memory of the host was given to a GPU");
}

}  // namespace anabranch
