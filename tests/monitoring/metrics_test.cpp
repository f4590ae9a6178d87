#include "monitoring/metrics.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/temp_dir.h"

namespace anabranch {

namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, EverySeriesIsThereFromTheStart) {
  const Metrics metrics(Labels{{"run", "a"}}, {"web", "books"});
  EXPECT_EQ(metrics.value(Metric::kTokens), 0);
  EXPECT_TRUE(std::isnan(metrics.value(Metric::kLoss)));
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("anabranch_run_info{run=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE anabranch_tokens_total counter\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_tokens_total 0\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_validation_loss{source=\"books\"} Nan\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_skipped_steps_total{reason=\"outlier\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("collective=\"reduce_scatter\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_step_seconds_bucket{le=\"+Inf\"} 0\n"));
  for (const MetricSpec& spec : kRunMetrics) {
    EXPECT_THAT(text, HasSubstr(std::string("# HELP anabranch_") + spec.name + " "));
  }
  for (const MetricSpec& spec : kMixtureMetrics) {
    EXPECT_THAT(text, Not(HasSubstr(std::string("anabranch_") + spec.name)));
  }
}

TEST(Metrics, MixturesHaveSeriesByLayerAndPart) {
  Metrics metrics(Labels{}, {"all"}, {.layers = 3, .streams = 2, .experts = 0});
  metrics.set(Metric::kStreamLoad, 0.25, 2, 1);
  metrics.set(Metric::kEffectiveStreams, 1.5, 1, 0);
  metrics.set(Metric::kAuxiliaryLoss, 0.5, 0, 0);
  const std::vector<Metrics::Series> loads = metrics.read(Metric::kStreamLoad);
  ASSERT_EQ(loads.size(), 6U);
  EXPECT_EQ(loads[5].layer, 2);
  EXPECT_EQ(loads[5].part, 1);
  EXPECT_EQ(loads[5].value, 0.25);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("anabranch_stream_load{layer=\"2\",stream=\"1\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_stream_load{layer=\"0\",stream=\"1\"} Nan\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_effective_streams{layer=\"1\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_auxiliary_loss 0.5\n"));
  EXPECT_THAT(text, HasSubstr("anabranch_validation_loss_looking_ahead{source=\"all\"} Nan\n"));
  EXPECT_THAT(text, Not(HasSubstr("anabranch_expert_load")));
  EXPECT_THROW(metrics.set(Metric::kStreamLoad, 1, 3, 0), Error);
  EXPECT_THROW(metrics.set(Metric::kStreamLoad, 1, 0, 2), Error);
  EXPECT_THROW(metrics.set(Metric::kEffectiveStreams, 1, 0, 1), Error);
  EXPECT_NO_THROW(metrics.set(Metric::kExpertLoad, 1, 0, 0));
}

TEST(Metrics, AMetricOfTooManySeriesHasNone) {
  const PartCounts parts{.layers = 4, .streams = 0, .experts = 8};
  Metrics capped(Labels{}, {"all"}, parts, 31);
  capped.set(Metric::kExpertLoad, 1, 3, 7);
  capped.set(Metric::kRouterEntropy, 0.5, 3, 0);
  EXPECT_THAT(capped.text(), Not(HasSubstr("anabranch_expert_load")));
  EXPECT_THAT(capped.text(), HasSubstr("anabranch_router_entropy{layer=\"3\"} 0.5\n"));
  EXPECT_EQ(Metrics(Labels{}, {"all"}, parts, 32).read(Metric::kExpertLoad).size(), 32U);
  const Metrics none(Labels{}, {"all"}, parts, 0);
  EXPECT_THAT(none.text(), Not(HasSubstr("layer=")));
  EXPECT_THAT(none.text(), HasSubstr("anabranch_auxiliary_loss Nan\n"));
}

TEST(Metrics, ADenseRunIgnoresFiguresOfMixtures) {
  Metrics metrics(Labels{});
  const std::string before = metrics.text();
  metrics.set(Metric::kStreamLoad, 1, 0, 0);
  metrics.set(Metric::kAuxiliaryLoss, 1, 0, 0);
  metrics.set(Metric::kValidationLossLookingAhead, 1, "all");
  EXPECT_EQ(metrics.text(), before);
}

TEST(Metrics, RunsOnGpusHaveTheirSeries) {
  Metrics metrics(Labels{}, {"all"}, {}, Metrics::kLabelLimit, true);
  for (const MetricSpec& spec : kGpuMetrics) {
    EXPECT_THAT(metrics.text(), HasSubstr(std::string("# HELP anabranch_") + spec.name + " "));
    EXPECT_THAT(Metrics(Labels{}).text(), Not(HasSubstr(spec.name)));
  }
  metrics.set(Metric::kGpuPower, 700, "max");
  metrics.set(Metric::kGpusThrottled, 2, "thermal");
  metrics.set(Metric::kGpuXid, 1);
  EXPECT_THAT(metrics.text(), HasSubstr("anabranch_gpu_power_watts{stat=\"max\"} 700\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("anabranch_gpus_throttled{cause=\"thermal\"} 2\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("anabranch_gpu_xid_errors_total 1\n"));
  Metrics none(Labels{});
  EXPECT_NO_THROW(none.set(Metric::kGpuXid, 1));
}

TEST(Metrics, OfGpusAreListedForTheirReaders) {
  std::ifstream in(AB_SOURCE_DIR "/monitoring/README.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const MetricSpec& spec : kGpuMetrics) {
    EXPECT_THAT(text, HasSubstr(join("`", spec.name, "`")));
  }
  for (const char* cause : kThrottleCauses) {
    EXPECT_THAT(text, HasSubstr(join("`", cause, "`")));
  }
}

TEST(Metrics, NamesAreUniqueAndConventional) {
  std::set<std::string> names;
  for (const MetricSpec& spec : kMetrics) {
    const std::string name = spec.name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(name.ends_with("_total"), spec.type == MetricType::kCounter) << name;
    EXPECT_TRUE(std::string(spec.help).ends_with(".")) << name;
  }
}

TEST(Metrics, HistogramCountsByUpperBound) {
  Metrics metrics(Labels{});
  for (const double seconds : {0.005, 0.01, 0.3, 1e9})
    metrics.observe(Metric::kStepSeconds, seconds);
  const Metrics::Series series = metrics.read(Metric::kStepSeconds).at(0);
  EXPECT_EQ(series.buckets.front(), 2U);  // 0.01 lies in its own bucket
  EXPECT_EQ(series.buckets.back(), 4U);
  EXPECT_THAT(metrics.text(), HasSubstr("anabranch_step_seconds_bucket{le=\"0.5\"} 3\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("anabranch_step_seconds_count 4\n"));
}

TEST(Metrics, CountsFromManyThreads) {
  Metrics metrics(Labels{});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        metrics.add(Metric::kCommunicationBytes, 2, "all_reduce");
        metrics.observe(Metric::kStepSeconds, 1);
        if (j % 100 == 0) (void)metrics.text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metrics.value(Metric::kCommunicationBytes, "all_reduce"), 8000);
  EXPECT_EQ(metrics.read(Metric::kStepSeconds)[0].buckets.back(), 4000U);
  EXPECT_EQ(metrics.value(Metric::kStepSeconds), 4000);
}

TEST(Metrics, RefusesWrongUse) {
  Metrics metrics(Labels{});
  EXPECT_THROW(metrics.set(Metric::kLoss, 1, "min"), Error);
  EXPECT_THROW(metrics.set(Metric::kResidentMemory, 1), Error);
  EXPECT_THROW(metrics.add(Metric::kLoss, 1), Error);
  EXPECT_THROW(metrics.observe(Metric::kLoss, 1), Error);
}

TEST(Metrics, EscapesLabels) {
  const Metrics metrics(Labels{{"run", "a\"b\\c\nd"}});
  EXPECT_THAT(metrics.text(), HasSubstr("{run=\"a\\\"b\\\\c\\nd\"}"));
}

TEST(Metrics, PassPromtool) {
  if (std::system("promtool --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool (package prometheus) is not installed";
  }
  const test::TempDir folder;
  const std::string dir = folder.path();
  Metrics metrics(Labels{{"run", "a"}, {"version", "0.1.0"}}, {"all"}, {2, 3, 4});
  metrics.set(Metric::kExpertLoad, 0.25, 1, 3);
  metrics.observe(Metric::kStepSeconds, 0.1);
  std::ofstream(dir + "/metrics.txt") << metrics.text();
  const std::string command =
      "promtool check metrics < " + dir + "/metrics.txt > " + dir + "/report.txt 2>&1";
  const int status = std::system(command.c_str());
  std::ifstream report(dir + "/report.txt");
  const std::string lines{std::istreambuf_iterator<char>(report), {}};
  EXPECT_EQ(status, 0) << lines;
  EXPECT_EQ(lines, "");
}

}  // namespace

}  // namespace anabranch
