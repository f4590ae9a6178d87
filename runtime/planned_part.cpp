#include "runtime/planned_part.h"

#include <string>

#include "core/base/error.h"
#include "runtime/models/registry.h"
#include "runtime/train_step.h"

namespace anabranch {
namespace {

// A group of which only the size is known, to ask a model for the shapes of the first rank's part.
class OnlyItsSize final : public Group {
 public:
  explicit OnlyItsSize(int size) : Group(0, size, nullptr) {}

  void abort(const std::string& /*reason*/) override {}

  std::unique_ptr<Group> split(int /*color*/, int /*key*/) override {
    return std::make_unique<OnlyItsSize>(size());
  }

 private:
  void run(const Collective& c) override { AB_FAIL(c.text(), " on a group that is only planned"); }
};

}  // namespace

PlannedPart::PlannedPart(const Config& config, int64_t vocabulary, const MeshShape& shape)
    : layout_(layout_of(config, shape)),
      matrix_(config.optim.matrix),
      model_ranks_(std::make_unique<OnlyItsSize>(shape.model)),
      pool_ranks_(std::make_unique<OnlyItsSize>(shape.pool)),
      model_(
          make_model(config, vocabulary, regions_of(config, shape, *model_ranks_, *pool_ranks_))) {
  if (!layout_.zero) return;  // all have all
  const std::vector<Bucket> laid_out = buckets();
  int64_t most = 0;
  for (int d = 0; d < shape.data; ++d) {
    int64_t own = 0;
    for (const Bucket& b : laid_out) {
      own += b.slice(b.reduce == ReduceGroup::kAll ? d * shape.model : d).count;
    }
    if (own <= most) continue;
    most = own;
    layout_.all_rank = d * shape.model;
    layout_.data_rank = d;
  }
}

}  // namespace anabranch
