// Delays of either stream at any point change nothing in a run: each of its streams waits for what
// it needs of the other. AB_ROUNDS says how many seeds are tried (1); with more than one, every
// collective is held up too, else a few.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "tests/cuda_sim/sim.h"
#include "tests/runtime/training.h"

namespace anabranch {
namespace {

using cuda_sim::Piece;
using Pick = std::function<bool(const Piece&)>;

struct Job {
  const char* name;
  void (*set)(Config& config);
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

const Job kJobs[] = {
    {"data", [](Config&) {}},
    {"zero", [](Config& c) { c.parallel.zero = 1; }},
    {"gather",
     [](Config& c) {
       c.model.type = ModelType::kCmollm;
       c.model.cmollm.variant = GateVariant::kSimple;
       c.parallel.model = {2};
       c.parallel.stream_layout = StreamLayoutChoice::kGather;
     }},
};

class SimDelays : public testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    config_.train.batch_tokens = 4 * config_.model.context;
    GetParam().set(config_);
    fill_derived(config_);
    cuda_sim::options().streams = cuda_sim::Streams::kEager;
    want_ = losses();
    look();
  }

  void TearDown() override { cuda_sim::options() = before_; }

  // Losses of a run of its own with these pieces held up.
  std::vector<double> delayed(const Pick& delays) {
    cuda_sim::options().streams = cuda_sim::Streams::kDelayed;
    cuda_sim::options().delays = delays;
    return losses();
  }

  // Calls body(name, pick) for each way to hold up pieces: of both streams or one at random, and
  // one collective.
  void for_each_delay(const std::function<void(const std::string&, const Pick&)>& body) const {
    for (int seed = 1; seed <= rounds(); ++seed) {
      body(join("both streams, seed ", seed), [=](const Piece& p) { return is_late(seed, p); });
      for (const bool communicates : {false, true}) {
        body(join(communicates ? "communication" : "computation", ", seed ", seed),
             [=, this](const Piece& p) {
               return (p.stream == communication_) == communicates && is_late(seed, p);
             });
      }
    }
    const size_t step = rounds() > 1 ? 1 : std::max<size_t>(1, collectives_.size() / 3);
    for (size_t i = 0; i < collectives_.size(); i += step) {
      body(join("collective ", i, " of ", collectives_.size()), [=, this](const Piece& p) {
        return p.stream == communication_ && p.number == collectives_[i];
      });
    }
  }

  std::vector<double> want_;
  std::vector<uint64_t> collectives_;  // numbers of their pieces
  int communication_ = -1;             // the stream that they are on

 private:
  static int rounds() {
    const char* rounds = std::getenv("AB_ROUNDS");
    return rounds != nullptr ? std::atoi(rounds) : 1;
  }

  // One piece in 2 to 64, by the seed.
  static bool is_late(int seed, const Piece& p) {
    const auto place = static_cast<size_t>(2 * p.device + p.stream) % 4;
    const uint32_t random = philox(static_cast<uint64_t>(seed), p.number)[place];
    return random % (2U << static_cast<unsigned>(seed) % 6) == 0;
  }

  std::vector<double> losses() {
    config_.run.dir = (folder_ / join("run", ++started_)).string();
    return test::run_training(config_, {.ranks = 2, .device = {Device::Kind::kCuda, 0}}).losses();
  }

  void look() {
    (void)delayed([this](const Piece& p) {
      if (p.collective && p.device == 0) {
        collectives_.push_back(p.number);
        communication_ = p.stream;
      }
      return false;
    });
  }

  test::TrainingFolder folder_;
  Config config_ = folder_.config("run", 2);
  int started_ = 0;
  cuda_sim::Options before_ = cuda_sim::options();
};

TEST_P(SimDelays, ChangeNothing) {
  for_each_delay([this](const std::string& name, const Pick& delays) {
    EXPECT_EQ(delayed(delays), want_) << name;
  });
}

// A run all of whose waits of one stream for the other are left out is another, or none.
TEST_P(SimDelays, ShowAWaitThatIsForgotten) {
  for (const bool communicates : {false, true}) {
    bool seen = false;
    cuda_sim::options().forgets = [=, this](const Piece& p) {
      return (p.stream == communication_) == communicates;
    };
    for_each_delay([&](const std::string& /*name*/, const Pick& delays) {
      seen = seen || delayed(delays) != want_;
    });
    EXPECT_TRUE(seen) << (communicates ? "communication" : "computation") << " does not wait";
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimDelays, testing::ValuesIn(kJobs),
                         [](const auto& job) { return std::string(job.param.name); });

}  // namespace
}  // namespace anabranch
