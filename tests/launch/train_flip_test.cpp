// Weights of one rank that change in its memory while a job of four ranks trains.
#include <algorithm>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/host_name.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/checkpoints.h"

namespace anabranch {
namespace {

using testing::HasSubstr;

// The writable memory of another process, as a debugger sees it.
class Memory {
 public:
  explicit Memory(pid_t pid)
      : folder_(join("/proc/", pid)), file_(open((folder_ + "/mem").c_str(), O_RDWR | O_CLOEXEC)) {}

  ~Memory() { close(file_); }

  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Writes over the beginning of every place that holds `bytes`; returns how many there are.
  int overwrite(const std::string& bytes, const std::string& with) const {
    int written = 0;
    for (const auto& [begin, end] : regions()) {
      std::string content(end - begin, '\0');
      const ssize_t got = pread(file_, content.data(), content.size(), static_cast<off_t>(begin));
      content.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
      for (size_t at = 0; (at = content.find(bytes, at)) != std::string::npos; ++at) {
        const ssize_t done =
            pwrite(file_, with.data(), with.size(), static_cast<off_t>(begin + at));
        written += done == std::ssize(with);
      }
    }
    return written;
  }

 private:
  // Anonymous ones that may be written, and are no reserve of address space.
  [[nodiscard]] std::vector<std::pair<uint64_t, uint64_t>> regions() const {
    constexpr uint64_t kMost = uint64_t{256} << 20;
    std::vector<std::pair<uint64_t, uint64_t>> all;
    std::ifstream maps(folder_ + "/maps");
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      std::string range, rights, offset, device;
      int64_t inode = 0;
      words >> range >> rights >> offset >> device >> inode;
      uint64_t begin = 0, end = 0;
      const char* last = range.data() + range.size();
      const auto middle = std::from_chars(range.data(), last, begin, 16);
      std::from_chars(middle.ptr + 1, last, end, 16);
      if (rights.starts_with("rw") && inode == 0 && end - begin <= kMost)
        all.emplace_back(begin, end);
    }
    return all;
  }

  std::string folder_;
  int file_;
};

struct Flip {
  int rank;
  const char* weights;  // a parameter's name
  std::vector<std::string> arguments;
  std::string found;  // who differs
};

class TrainFlip : public TrainJobs {
 protected:
  void SetUp() override {
    if (AB_SANITIZED) GTEST_SKIP() << "a sanitizer keeps its own copies of all memory";
    TrainJobs::SetUp();
  }

  // Trains for two steps at a rate at which weights stay what they are, so that they are found in
  // memory; returns bytes of a parameter, from element `from` on.
  std::string bytes_of(const std::string& name, size_t from,
                       const std::vector<std::string>& arguments) {
    constexpr size_t kEnough = 64;
    std::vector<std::string> few = arguments;
    few.insert(few.end(), {kStill, "--set=train.steps=2"});
    const std::string run = join("begun-", ++begun_);
    const Ended end = train_to_end(run, kRanks, few);
    EXPECT_EQ(end.exit_code, 0) << end.output;
    const auto tensors = test::checkpoint_tensors(path(run), 2);
    const auto found = tensors.find(name);
    if (found == tensors.end()) throw data_error("the checkpoint has no ", name);
    return found->second.substr(from * sizeof(float), kEnough);
  }

  // Lets a job train a little, and writes into the memory of one rank between two steps; returns
  // how many steps it had done.
  int64_t spoil(const std::string& run, test::Process& job, int rank, const std::string& bytes,
                const std::string& with) {
    EXPECT_TRUE(has_come_to(run, 10)) << job.output();
    const pid_t victim = job.rank(rank);
    kill(victim, SIGSTOP);
    int64_t before = -1;
    for (int64_t now = 0; now != before; now = std::ssize(losses(run))) {
      before = now;
      test::pause_for(0.3);
    }
    EXPECT_GE(Memory(victim).overwrite(bytes, with), 1);
    kill(victim, SIGCONT);
    return before;
  }

  static constexpr int kRanks = 4;
  static constexpr const char* kStill = "--set=optim.lr=1e-30";

 private:
  int begun_ = 0;
};

// Found at the next comparison, by name, before it is saved.
TEST_F(TrainFlip, IsFoundAtTheNextComparisonByName) {
  constexpr int64_t kEvery = 7;
  const std::string h = host_name();
  const std::vector<std::string> streams = {"--set=model.type=cmollm", "--set=model.streams=4",
                                            "--set=parallel.model=2"};
  const std::vector<Flip> flips = {
      {1, "h.0.attn.c_attn.weight", {}, "rank 1 on " + h + " differs from the other 3 ranks"},
      {3, "wte.weight", {}, "rank 3 on " + h + " differs from the other 3 ranks"},
      // Of the ranks 0 and 2, which have the same streams, there is no majority.
      {2, "h.0.ffn.streams.weight", streams,
       "rank 0 on " + h + ", rank 2 on " + h + " differ from each other"}};
  for (size_t i = 0; i < flips.size(); ++i) {
    const Flip& flip = flips[i];
    SCOPED_TRACE(join("rank ", flip.rank, ", ", flip.weights));
    const std::string bytes = bytes_of(flip.weights, 0, flip.arguments), run = join("run-", i);
    std::vector<std::string> arguments = flip.arguments;
    arguments.insert(arguments.end(),
                     {kStill, kEndless, join("--set=parallel.check_every=", kEvery)});
    const auto job = train(run, kRanks, arguments);
    std::string turned = bytes.substr(0, 6);
    turned.back() = static_cast<char>(turned.back() ^ 1);
    const int64_t step = spoil(run, *job, flip.rank, bytes, turned);
    const Ended end = finish(*job);
    EXPECT_EQ(end.exit_code, 70) << end.output;
    // The comparison after the step itself may still have been to come.
    const auto says = [&](int64_t good) {
      return end.output.find(join("were after step ", good, ": ", flip.found, " in ",
                                  flip.weights)) != std::string::npos;
    };
    const int64_t good = step / kEvery * kEvery;
    EXPECT_TRUE(says(good) || (step == good && says(good - kEvery))) << step << "\n" << end.output;
    EXPECT_TRUE(test::saved_steps(path(run)).empty());
  }
}

// A weight of one expert, on one of the two ranks that have it, is no number any more: every step
// from then on is skipped by all, and counted, until there are too many. No such weight is saved.
TEST_F(TrainFlip, AnExpertThatIsNoNumberIsNeitherAppliedNorSaved) {
  std::string config = text_of("run.yaml");
  const std::string dropout = ", dropout: 0.1";  // not a key of this family
  config.erase(config.find(dropout), dropout.size());
  test::spill(path("run.yaml"), config);
  const std::vector<std::string> experts = {
      "--set=model.type=kappa_moe", "--set=model.experts=4",    "--set=model.moe_first=0",
      "--set=parallel.model=2",     "--set=model.ffn_width=32", "--set=train.nonfinite_limit=4"};
  constexpr size_t kExpert = size_t{2} * 32 * 16;  // elements of one of them
  const std::string bytes = bytes_of("h.0.experts.in.weight", 2 * kExpert, experts);
  std::vector<std::string> arguments = experts;
  arguments.insert(arguments.end(), {kStill, kEndless, "--set=checkpoint.every_steps=1"});
  const auto job = train("run", kRanks, arguments);
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  spoil("run", *job, 3, bytes, {reinterpret_cast<const char*>(&nothing), sizeof nothing});
  const Ended end = finish(*job);
  EXPECT_EQ(end.exit_code, 70) << end.output;
  EXPECT_THAT(end.output, HasSubstr("not finite for 4 steps in a row"));
  int64_t skipped = 0;
  for_each_line("run", [&](const nlohmann::json& report) {
    if (report.at("type") == "step" && report.contains("skipped")) ++skipped;
  });
  EXPECT_EQ(skipped, 4);
  // The other rank's copy may have been saved since; this one's never is.
  const int64_t saved = test::saved_steps(path("run")).front();
  EXPECT_EQ(test::checkpoint_tensors(path("run"), saved).at("h.0.experts.in.weight").find(bytes),
            2 * kExpert * sizeof(float));
}

}  // namespace
}  // namespace anabranch
