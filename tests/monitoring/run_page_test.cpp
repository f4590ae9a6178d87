#include "monitoring/run_page.h"

#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/xml.h"

namespace anabranch {

namespace {

using testing::HasSubstr;
using testing::Not;

// What is wrong with a page as XML; it stands behind its document type, and its script is apart.
std::string problem_of(const std::string& page) {
  return test::XmlCheck(page.substr(page.find("<html"))).problem();
}

class RunPageTest : public testing::Test {
 protected:
  void train(int steps) {
    for (int step = 1; step <= steps; ++step) {
      metrics_.set(Metric::kStep, step);
      metrics_.set(Metric::kStepsPlanned, 100);
      metrics_.set(Metric::kLoss, 5 - 0.01 * step);
      metrics_.set(Metric::kTokensPerSecond, 12000 + step);
      for (const char* stat : {"min", "median", "max"}) {
        metrics_.set(Metric::kComputeSeconds, 1, stat);
        metrics_.set(Metric::kCommunicationWaitSeconds, 0.25, stat);
        metrics_.set(Metric::kDataWaitSeconds, 0.125, stat);
        metrics_.set(Metric::kResidentMemory, 2e9, stat);
      }
      metrics_.observe(Metric::kStepSeconds, 2);
      history_.step(metrics_, step, 2);
    }
  }

  Metrics metrics_{Labels{{"run", "a<b & c"}, {"model", "cmollm"}},
                   {"all"},
                   {.layers = 2, .streams = 2, .experts = 0}};
  RunHistory history_;
};

TEST_F(RunPageTest, NothingIsKnownAtTheBeginning) {
  for (const std::string& page :
       {run_page(metrics_, history_), utilisation_page(metrics_, history_)}) {
    EXPECT_EQ(problem_of(page), "");
    EXPECT_THAT(page, HasSubstr("not known yet"));
    EXPECT_THAT(page, HasSubstr("data-step=\"0\""));
    EXPECT_THAT(page, Not(HasSubstr("nan")));
  }
}

TEST_F(RunPageTest, ShowsTheRun) {
  train(40);
  history_.validation(40, Metric::kValidationLoss, "all", 4.75);
  const std::string page = run_page(metrics_, history_);
  EXPECT_EQ(problem_of(page), "");
  for (const char* text :
       {"a&lt;b &amp; c", "model cmollm", "data-step=\"40\"", "<dd>40 <small>of 100</small>",
        "<dd>2:00</dd>", "<dd>4.6000</dd>", "<dd>4.7500</dd>", "<dd>12 k</dd>", "no peak stated",
        "value=\"0.4\"", ">communication<"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  metrics_.set(Metric::kMfu, 0.42);
  history_.step(metrics_, 41, 2);
  EXPECT_THAT(run_page(metrics_, history_), HasSubstr("<dd>42.0%</dd>"));
}

TEST_F(RunPageTest, ShowsWhatIsUsed) {
  train(3);
  metrics_.set(Metric::kCommunicationBytes, 5e9, "all_reduce");
  metrics_.set(Metric::kCommunicationSeconds, 3, "all_reduce");
  metrics_.set(Metric::kStreamLoad, 0.75, 1, 0);
  metrics_.set(Metric::kStreamLoad, 0.25, 1, 1);
  const std::string page = utilisation_page(metrics_, history_);
  EXPECT_EQ(problem_of(page), "");
  for (const char* text :
       {"<th>Computing</th><td>1 s</td><td>1 s</td><td>1 s</td>", "<td>0.25 s</td>",
        "<td>2 GB</td>", "<th>all_reduce</th><td>5 GB</td><td>3.0</td><td>50.0%</td>",
        "layer 1, stream 0: 0.75"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(page, Not(HasSubstr("all_gather")));
  EXPECT_THAT(page, Not(HasSubstr("GPU")));
}

TEST_F(RunPageTest, GpusShowWhereTheyAre) {
  Metrics metrics(Labels{{"run", "a"}}, {"all"}, {}, Metrics::kLabelLimit, true);
  metrics.set(Metric::kGpuPower, 650, "max");
  metrics.set(Metric::kGpuUtilisation, 0.5, "median");
  history_.step(metrics, 1, 2);
  const std::string page = utilisation_page(metrics, history_);
  EXPECT_EQ(problem_of(page), "");
  EXPECT_THAT(page, HasSubstr("<td>650 W</td>"));
  EXPECT_THAT(page, HasSubstr("GPU busy, median"));
}

// The namespace of SVG is a name that nobody asks for.
TEST_F(RunPageTest, NamesNoOtherHost) {
  train(3);
  const std::regex address("https?://[^\"' ]*");
  for (const std::string& text : {run_page(metrics_, history_),
                                  utilisation_page(metrics_, history_), std::string(kPageScript)}) {
    for (std::sregex_iterator it(text.begin(), text.end(), address), end; it != end; ++it) {
      EXPECT_EQ(it->str(), "http://www.w3.org/2000/svg");
    }
  }
}

TEST_F(RunPageTest, IdsAreUnique) {
  train(3);
  const std::regex id(" id=\"([^\"]*)\"");
  for (const std::string& text :
       {run_page(metrics_, history_), utilisation_page(metrics_, history_)}) {
    std::set<std::string> seen;
    for (std::sregex_iterator it(text.begin(), text.end(), id), end; it != end; ++it) {
      EXPECT_TRUE(seen.insert((*it)[1]).second) << (*it)[1];
    }
    EXPECT_GE(seen.size(), 4U);
  }
}

}  // namespace

}  // namespace anabranch
