#include "tests/launch/train_job.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace anabranch {
namespace {

// What mpirun needs on a machine of few cores, as any user.
const test::Process::Environment kMpi = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                         {"OMPI_MCA_mpi_yield_when_idle", "1"}};

// Documents of words that repeat, so that there is something to learn.
std::string corpus() {
  constexpr const char* kWords[] = {"the",   "river", "parts",  "and",   "meets", "again",
                                    "below", "an",    "island", "where", "water", "slows"};
  std::string text;
  for (uint64_t d = 0; d < 150; ++d) {
    const uint32_t words = 4 + philox(3, d)[0] % 12;
    for (uint64_t w = 0; w < words; ++w)
      text += kWords[philox(3, d, 1 + w)[0] % 12] + std::string(" ");
    text += "\n";
  }
  return text;
}

const char* const kConfig = R"(schema: 1
model: {type: gpt2, layers: 1, width: 16, heads: 2, context: 16, dropout: 0.1}
train: {batch_tokens: 192, micro_batch: 3, log_every: 1}
optim: {lr: 3e-3, warmup_steps: 2}
checkpoint: {keep_last: 3}
parallel: {deadline_seconds: 60}
metrics: {listen: "off"}
)";

}  // namespace

void TrainJobs::SetUp() {
  const std::string folder = dir_.path().string();
  std::ofstream(folder + "/text.txt") << corpus();
  std::ofstream(folder + "/run.yaml") << kConfig;
  const auto must = [&](const std::vector<std::string>& arguments) {
    const Ended end = program(arguments);
    ASSERT_EQ(end.exit_code, 0) << end.output;
  };
  must({"tokenizer", "train", folder + "/text.txt", "--document", "line", "--vocab", "300", "--out",
        folder + "/tokenizer.json"});
  must({"shard", "build", folder + "/text.txt", "--document", "line", "--tokenizer",
        folder + "/tokenizer.json", "--out", folder + "/data", "--validation", "0.1"});
}

std::vector<std::string> TrainJobs::command(const std::string& run,
                                            const std::vector<std::string>& arguments) const {
  std::vector<std::string> words{AB_PROGRAM,
                                 "train",
                                 path("run.yaml").string(),
                                 "--set=run.dir=" + path(run).string(),
                                 "--set=data.path=" + data().string(),
                                 "--set=train.steps=" + std::to_string(kSteps)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

std::unique_ptr<test::Process> TrainJobs::start(const std::vector<std::string>& command) {
  const std::string output = path(join("out-", ++started_, ".txt")).string();
  test::Process::Environment all = environment_;
  all.insert(kMpi.begin(), kMpi.end());
  return std::make_unique<test::Process>(command, output, all);
}

std::unique_ptr<test::Process> TrainJobs::train(const std::string& run, int ranks,
                                                const std::vector<std::string>& arguments) {
  if (ranks == 0) return train_by({}, run, arguments);
  return train_by({"mpirun", "--oversubscribe", "--bind-to", "none", "-np", std::to_string(ranks)},
                  run, arguments);
}

std::unique_ptr<test::Process> TrainJobs::train_by(const std::vector<std::string>& launcher,
                                                   const std::string& run,
                                                   const std::vector<std::string>& arguments) {
  std::vector<std::string> words = launcher;
  const std::vector<std::string> program = command(run, arguments);
  words.insert(words.end(), program.begin(), program.end());
  return start(words);
}

std::unique_ptr<test::Process> TrainJobs::train_unlike(
    const std::string& run, const std::vector<std::vector<std::string>>& ranks) {
  std::vector<std::string> words{"mpirun", "--oversubscribe", "--bind-to", "none"};
  for (const std::vector<std::string>& arguments : ranks) {
    if (words.size() > 4) words.emplace_back(":");
    words.insert(words.end(), {"-np", "1"});
    const std::vector<std::string> program = command(run, arguments);
    words.insert(words.end(), program.begin(), program.end());
  }
  return start(words);
}

TrainJobs::Ended TrainJobs::finish(test::Process& job) const {
  const int code = job.wait();
  EXPECT_EQ(job.left_behind(), 0U);
  return {code, job.output()};
}

TrainJobs::Ended TrainJobs::train_to_end(const std::string& run, int ranks,
                                         const std::vector<std::string>& arguments) {
  return finish(*train(run, ranks, arguments));
}

TrainJobs::Ended TrainJobs::program(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{AB_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  test::Process process(command, path(join("out-", ++started_, ".txt")).string());
  return finish(process);
}

std::string TrainJobs::text_of(const std::string& name) const {
  std::ifstream in(path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool TrainJobs::has_come_to(const std::string& run, int64_t step) const {
  return test::soon([&] { return std::ssize(losses(run)) >= step; });
}

void TrainJobs::for_each_line(const std::string& run,
                              const std::function<void(const nlohmann::json&)>& f) const {
  std::istringstream lines(text_of(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line) && !lines.eof();) f(nlohmann::json::parse(line));
}

std::vector<double> TrainJobs::losses(const std::string& run) const {
  std::vector<double> all;
  for_each_line(run, [&](const nlohmann::json& report) {
    if (report.at("type") == "step") all.push_back(report.at("loss"));
  });
  return all;
}

std::map<int64_t, double> TrainJobs::losses_by_step(const std::string& run) const {
  std::map<int64_t, double> all;
  for_each_line(run, [&](const nlohmann::json& report) {
    if (report.at("type") == "step") all[report.at("step").get<int64_t>()] = report.at("loss");
  });
  return all;
}

int64_t TrainJobs::stopped_at(const std::string& run, int rank) const {
  const std::string log = text_of(join(run, "/log/rank-000", rank, ".log"));
  const std::regex line("stopped on request at step ([0-9]+)");
  const std::sregex_iterator first(log.begin(), log.end(), line), none;
  return std::distance(first, none) == 1 ? std::stoll((*first)[1]) : -1;
}

}  // namespace anabranch
