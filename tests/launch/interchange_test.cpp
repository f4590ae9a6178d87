// `checkpoint export` and `import` as a user has them: out, in, measured, sampled and trained on.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/launch/train_job.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

class Interchange : public TrainJobs {
 protected:
  std::string must(const std::vector<std::string>& arguments) {
    const Ended end = program(arguments);
    EXPECT_EQ(end.exit_code, 0) << end.output;
    return end.output;
  }

  // The losses that eval prints, which name no folder.
  std::string losses_of(const std::string& run) {
    const std::string text = must({"eval", path(run).string(), "--data", data().string()});
    const size_t table = text.find("split ");
    EXPECT_NE(table, std::string::npos) << text;
    return text.substr(table);
  }
};

TEST_F(Interchange, OutInAndOn) {
  ASSERT_EQ(train_to_end("run", 0).exit_code, 0);
  const std::string out = path("out").string(), in = path("in").string();
  EXPECT_THAT(must({"checkpoint", "export", path("run").string(), "--names"}),
              HasSubstr("transformer.h.0.attn.c_attn.weight"));
  EXPECT_THAT(must({"checkpoint", "export", path("run").string(), "--out", out}),
              HasSubstr("GPT-2 as transformers loads it"));
  EXPECT_THAT(must({"checkpoint", "import", out, "--out", in}), HasSubstr("GPT-2 of transformers"));
  EXPECT_EQ(losses_of("in"), losses_of("run"));
  must({"generate", in, "--prompt", "the river", "--tokens", "4"});
  const std::string tuned =
      must({"train", in + "/config.yaml", "--set=train.steps=3", "--set=train.batch_tokens=192",
            "--set=metrics.listen=off", "--set=data.path=" + data().string()});
  EXPECT_THAT(tuned, HasSubstr("imported weights, with a fresh optimizer"));
}

TEST_F(Interchange, WhatIsWrongHasItsExitCode) {
  const std::string out = path("out").string(), none = path("none").string();
  EXPECT_EQ(program({"checkpoint", "import", none, "--out", out}).exit_code, 65);
  EXPECT_EQ(program({"checkpoint", "import", data().string(), "--out", out}).exit_code, 65);
  EXPECT_EQ(program({"checkpoint", "export", none}).exit_code, 64);
  EXPECT_EQ(program({"checkpoint", "export", none, "--out", out, "--format", "onnx"}).exit_code,
            64);
}

}  // namespace
}  // namespace anabranch
