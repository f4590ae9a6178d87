#include "runtime/memory_need.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/models/registry.h"
#include "tests/data/folder.h"
#include "tests/support/temp_dir.h"

namespace anabranch {
namespace {

// A rank of so many that all have the same.
FlatStore::Options whole_on(int ranks) { return {.all_ranks = ranks, .data_ranks = ranks}; }

std::unique_ptr<Model> model_of(const std::string& sizes, const std::string& precision = "fp32") {
  return make_model(
      parse_config("model: {" + sizes + "}\ntrain: {precision: " + precision + "}\n", "memory"),
      50);
}

const char* const kSmall = "layers: 2, width: 16, heads: 2, context: 8";

TEST(MemoryNeed, CountsWhatIsKeptOfEachParameter) {
  const auto model = model_of(kSmall);
  const auto n = static_cast<double>(model->cost().parameters);
  const MemoryNeed run = weights_memory(*model);
  EXPECT_EQ(run.parameters, model->cost().parameters);
  EXPECT_EQ(run.total(), 4 * n);
  const MemoryNeed train = training_memory(*model, whole_on(2));
  EXPECT_EQ(train.parameters, run.parameters);
  EXPECT_GE(train.weights, 4 * n);
  EXPECT_LE(train.weights, 4.2 * n);  // buckets are padded
  EXPECT_EQ(train.gradients, train.weights);
  EXPECT_EQ(train.moments, 2 * train.weights);
  EXPECT_EQ(train.save, 1.5 * train.weights);
  FlatStore::Options layout{.all_ranks = 2, .data_ranks = 2, .zero = true};
  const MemoryNeed zero = training_memory(*model, layout);
  EXPECT_EQ(zero.weights, train.weights);
  EXPECT_EQ(zero.gradients, train.weights);
  EXPECT_EQ(zero.moments, train.weights);
  EXPECT_EQ(zero.save, 1.5 * train.weights);
  const auto rounded = model_of(kSmall, "bf16");
  const double saved = training_memory(*rounded, whole_on(2)).weights;
  EXPECT_NEAR(saved - training_memory(*rounded, layout).weights, 2 * n, 0.15 * n);  // half a master
  EXPECT_EQ(weights_memory(*model_of(kSmall, "fp64")).total(), 8 * n);
  const double bf16 = weights_memory(*model_of(kSmall, "bf16")).total();
  EXPECT_GT(bf16, 5 * n);  // matrices have a copy
  EXPECT_LE(bf16, 6 * n);
  const Device gpu{Device::Kind::kCuda, 0};
  const MemoryNeed there = weights_memory(*model_of(kSmall, "bf16"), gpu);
  EXPECT_GE(there.total(), 2 * n);  // and no masters
  EXPECT_LE(there.total(), 3 * n);
  EXPECT_EQ(there.masters, 0);
}

TEST(MemoryNeed, RefusesWhatDoesNotFit) {
  const auto model = model_of(kSmall);
  const MemoryNeed need = training_memory(*model, whole_on(1));
  require_memory(need, 1, need.total());
  test::expect_error(Fault::kConfig, {"does not fit", "for the 2 ranks here", "model.width"},
                     [&] { require_memory(need, 2, 1.5 * need.total()); });
  EXPECT_GT(physical_memory(), 1e8);
  // No number overflows on the way.
  const auto huge =
      model_of("layers: 4096, width: 1048576, heads: 1, context: 16777216, ffn_width: 16777216");
  test::expect_error(Fault::kConfig, {"does not fit", "a smaller micro-batch does not help"},
                     [&] { require_memory(training_memory(*huge, whole_on(1))); });
}

TEST(MemoryNeed, TheLowestLimitOfTheControlGroupsAboveHolds) {
  const test::TempDir folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text;
  };
  write("v2", "0::/job/step\n");
  EXPECT_EQ(control_group_memory(folder.path(), folder / "v2"), INFINITY);
  write("job/step/memory.max", "max\n");
  write("job/memory.max", "3000\n");
  write("memory.max", "5000\n");
  EXPECT_EQ(control_group_memory(folder.path(), folder / "v2"), 3000);
  write("v1", "5:cpu:/elsewhere\n4:memory,hugetlb:/slurm/uid_0\n");
  write("memory/slurm/uid_0/memory.limit_in_bytes", "700\n");
  write("memory/slurm/memory.limit_in_bytes", "9000\n");
  EXPECT_EQ(control_group_memory(folder.path(), folder / "v1"), 700);
  EXPECT_EQ(control_group_memory(folder.path(), folder / "none"), INFINITY);
}

}  // namespace
}  // namespace anabranch
