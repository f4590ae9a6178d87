// Values that other programs recorded; see tests/reference/README.md.
#pragma once

#include <string>
#include <vector>

#include "data/hdf5/file.h"
#include "tests/support/tensors.h"

namespace anabranch::test {

class Reference {
 public:
  explicit Reference(const std::string& name)
      : file_(std::string(AB_SOURCE_DIR) + "/tests/reference/" + name) {}

  // A data set of float64 as a tensor of that type; a scalar has shape [1].
  [[nodiscard]] Tensor real(const std::string& name) const {
    const Hdf5DataSet& set = found(name);
    Tensor t(shape_of(set), DType::kF64);
    file_.read(set, t.data<double>(), set.bytes());
    return t;
  }

  [[nodiscard]] Tensor integers(const std::string& name) const {
    const Hdf5DataSet& set = found(name);
    Tensor t(shape_of(set), DType::kI32);
    file_.read(set, t.data<int32_t>(), set.bytes());
    return t;
  }

  [[nodiscard]] double number(const std::string& name) const { return *real(name).data<double>(); }

  [[nodiscard]] std::string text(const std::string& attribute, const std::string& group) const {
    return file_.string_attribute(attribute, group);
  }

  // An attribute of the file, or of a group.
  [[nodiscard]] int64_t count(const std::string& attribute, const std::string& group = "") const {
    return file_.int_attribute(attribute, group);
  }

  [[nodiscard]] double number(const std::string& attribute, const std::string& group) const {
    return file_.double_attribute(attribute, group);
  }

 private:
  const Hdf5DataSet& found(const std::string& name) const {
    const Hdf5DataSet* set = file_.find(name);
    AB_CHECK(set != nullptr, "no reference called ", name);
    return *set;
  }

  static Shape shape_of(const Hdf5DataSet& set) {
    return set.shape.empty() ? Shape{1} : Shape(set.shape.begin(), set.shape.end());
  }

  Hdf5Reader file_;
};

// |got - want| <= tolerance * the largest |want| of the tensor: single elements near zero carry
// the rounding of the larger ones.
inline void expect_close(const Tensor& got, const Tensor& want, Tolerance tolerance,
                         const std::string& what) {
  const std::vector<double> all = values(want);
  double largest = 0;
  for (const double v : all) largest = std::max(largest, std::abs(v));
  expect_near(got, all, {0, tolerance.absolute + tolerance.relative * largest}, what);
}

}  // namespace anabranch::test
