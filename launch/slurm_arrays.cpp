#include "launch/slurm_arrays.h"

#include <array>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include "core/base/error.h"
#include "data/hdf5/raw_file.h"
#include "launch/child_process.h"
#include "launch/launch_scripts.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPatience = "20";  // seconds: without a controller it may ask for minutes

// Run ids by task.
using Tasks = std::vector<std::string>;

std::map<std::string, Tasks> read_arrays(const fs::path& folder) {
  std::map<std::string, Tasks> arrays;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    if (entry.path().extension() != ".txt") continue;
    Tasks& tasks = arrays[entry.path().stem().string()];
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) tasks.push_back(fs::path(line).stem().string());
  }
  return arrays;
}

// Takes a line "NAME|JOB|TASK|STATE" of squeue.
void take_line(const std::string& line, const std::map<std::string, Tasks>& arrays,
               SlurmQueue& queue) {
  std::istringstream in(line);
  std::string name, job, task, state;
  for (std::string* field : {&name, &job, &task, &state}) std::getline(in, *field, '|');
  int64_t number = -1;
  const auto array = arrays.find(name);
  if (array == arrays.end() || !parse_number(task, number) || number < 0 ||
      number >= std::ssize(array->second)) {
    return;
  }
  JobOfRun& known = queue.jobs[array->second[static_cast<size_t>(number)]];
  if (!known.queue.empty() && known.queue != "PENDING") return;  // of two, that which runs
  known.queue = state;
  known.id = join(job, "_", task);
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return text.data();
}

std::string words(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

SlurmQueue ask_slurm(const SweepDirectory& directory) {
  SlurmQueue queue;
  const std::map<std::string, Tasks> arrays = read_arrays(directory.arrays());
  if (arrays.empty()) return queue;
  std::string names;
  for (const auto& [name, tasks] : arrays) names += (names.empty() ? "" : ",") + name;
  const Captured answer = capture(
      {"timeout", kPatience, "squeue", "-h", "-r", "-o", "%j|%F|%K|%T", "--name=" + names}, false);
  if (answer.exit_code == 0) {
    std::istringstream lines(answer.out);
    for (std::string line; std::getline(lines, line);) take_line(line, arrays, queue);
    return queue;
  }
  queue.trouble = answer.exit_code == 127   ? "there is no squeue here"
                  : answer.exit_code == 124 ? join("squeue does not answer for ", kPatience, " s")
                                            : join("squeue ends with exit code ", answer.exit_code);
  for (const auto& [name, tasks] : arrays) {
    std::string job = "?";
    std::ifstream(directory.arrays() / (name + ".job")) >> job;
    for (size_t t = 0; t < tasks.size(); ++t)
      queue.jobs[tasks[t]] = {false, "?", join(job, "_", t)};
  }
  return queue;
}

std::string submit_array(const SweepDirectory& directory, const SlurmWish& wish) {
  std::error_code failure;
  fs::create_directories(directory.arrays(), failure);
  const std::string name = join(wish.name, "-", timestamp(), "-", getpid());
  const fs::path list = directory.arrays() / (name + ".txt");
  std::string lines;
  for (const std::string& run : wish.runs) lines += directory.config(run).string() + "\n";
  write_atomically(list.string(), lines);
  const fs::path scripts = launch_folder();
  std::vector<std::string> command = {"env", "AB_PROGRAM=" + program_for_scripts(),
                                      (scripts / "submit.sh").string(), "--parsable"};
  command.insert(command.end(), wish.options.begin(), wish.options.end());
  // The last ones given hold.
  command.push_back("--job-name=" + name);
  command.push_back(join("--array=0-", wish.runs.size() - 1,
                         wish.at_once > 0 ? join("%", wish.at_once) : std::string()));
  command.push_back((scripts / "sweep.sbatch").string());
  command.push_back(list.string());
  const Captured answer = capture(command, true);
  const std::string job = answer.out.substr(0, answer.out.find_first_of(";\n"));
  int64_t number = 0;
  if (answer.exit_code != 0 || !parse_number(job, number)) {
    fs::remove(list, failure);
    throw io_error("nothing was submitted: ", words(command), " ended with exit code ",
                   answer.exit_code);
  }
  write_atomically((directory.arrays() / (name + ".job")).string(), job + "\n");
  return job;
}

}  // namespace anabranch
