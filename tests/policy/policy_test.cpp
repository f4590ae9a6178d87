// The rules of this tree that a compiler cannot check. Prints each breach; ends with their number.
//
//   policy_test ROOT            checks the tree
//   policy_test ROOT --planted  checks that each rule can fail, on planted breaches
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

struct Folder {
  std::set<std::string> below;   // folders of ours it may include, besides itself
  std::set<std::string> vendor;  // third-party headers it may include, in sources only
};

// Who may include whom. A path takes the rule of its longest matching folder.
const std::map<std::string, Folder> kFolders = {
    {"core/base", {{}, {"omp.h", "spdlog/", "sys/", "unistd.h", "sched.h"}}},
    {"core/cuda", {{"core/base"}, {"cuda", "cublas", "nvtx3/"}}},
    {"core/tensor", {{"core/base", "core/cuda"}, {"sys/mman.h", "cuda"}}},
    {"core/autograd", {{"core/base", "core/tensor"}, {}}},
    {"core/ops",
     {{"core/base", "core/cuda", "core/tensor", "core/autograd"},
      {"oneapi/dnnl/", "dnnl", "cuda", "mma.h"}}},
    {"core/nn", {{"core"}, {}}},
    {"monitoring",
     {{"core/base"},
      {"civetweb.h", "prometheus/", "nlohmann/", "dlfcn.h", "unistd.h", "fcntl.h", "netdb.h",
       "sys/"}}},
    {"data",
     {{"core/base", "core/tensor"},
      {"hdf5.h", "pcre2.h", "zlib.h", "zstd.h", "arrow/", "parquet/", "nlohmann/", "unistd.h",
       "fcntl.h", "sys/", "glob.h", "signal.h", "pthread.h"}}},
    {"parallel/comm",
     {{"core/base", "core/cuda", "core/tensor"},
      {"dlfcn.h", "mpi.h", "malloc.h", "unistd.h", "sched.h", "cuda", "nccl.h"}}},
    {"parallel", {{"core", "parallel/comm"}, {"mpi.h", "unistd.h", "sched.h", "omp.h"}}},
    {"runtime",
     {{"core", "parallel", "data", "monitoring"},
      {"yaml-cpp/", "nlohmann/", "fcntl.h", "sys/", "unistd.h"}}},
    {"launch",
     {{"core", "parallel", "data", "monitoring", "runtime"},
      {"CLI/", "nlohmann/", "mpi.h", "fmt/", "dlfcn.h", "fcntl.h", "unistd.h", "sys/", "signal.h",
       "malloc.h"}}},
    {"tests",
     {{"core", "parallel", "data", "monitoring", "runtime", "launch"},
      {"gtest/",   "gmock/",   "benchmark/", "nlohmann/",    "hdf5.h",    "mpi.h",
       "unistd.h", "fcntl.h",  "sys/",       "zlib.h",       "zstd.h",    "signal.h",
       "poll.h",   "arpa/",    "netinet/",   "oneapi/dnnl/", "dnnl",      "yaml-cpp/",
       "arrow/",   "parquet/", "netdb.h",    "sched.h",      "pthread.h", "pcre2.h",
       "nvtx3/",   "cuda",     "cublas",     "mma.h",        "nccl.h",    "sanitizer/"}}},
};

// The files that may look at a build macro.
const std::set<std::string> kConditional = {"core/base/build.h", "core/cuda/launch.cuh"};

constexpr int kHeaderLines = 200, kSourceLines = 400;

// Files that may be longer, each with its reason.
const std::map<std::string, std::string> kLongFiles = {
    {"data/tokenizer/unicode_ranges.cpp", "a generated table"},
};

// Where ending the process is the job: MPI's abort, which launch asks for.
const std::set<std::string> kMayEnd = {"parallel/comm/group_mpi.cpp"};

// Words that must not stand in the project.
const std::vector<std::string> kForbidden = {"/work/", "/root/", ".library", "../shared"};

// What returns or takes a view of libstdc++ 12. Clang 14, which builds the fuzz targets and checks
// changed files, cannot compile it.
const std::vector<std::string> kSubranges = {
    "ranges::rotate",
    "ranges::remove",
    "ranges::unique",
    "ranges::partition",
    "ranges::equal_range",
    "ranges::search",
    "ranges::stable_partition",
    "ranges::subrange",
    "ranges::find_end",
    "#include <ranges>",
    "views::",
};

bool inside(const std::string& path, const std::string& folder) {
  return path.rfind(folder + "/", 0) == 0;
}

bool starts_with_any(const std::string& text, const std::set<std::string>& prefixes) {
  return std::ranges::any_of(prefixes, [&](const auto& p) { return text.rfind(p, 0) == 0; });
}

// A header of the language or the C library's <cxxx> form has neither a slash nor a ".h".
bool standard(const std::string& header) { return header.find_first_of("/.") == std::string::npos; }

class Checker {
 public:
  void file(const std::string& path, const std::string& text) {
    const auto rule = rule_of(path);
    if (rule == kFolders.end()) return;
    std::istringstream in(text);
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      line_of(*rule, path, path + ":" + std::to_string(++number), line);
    }
    const int most = path.ends_with(".h") ? kHeaderLines : kSourceLines;
    if (number > most && !kLongFiles.contains(path)) {
      breach(path, std::to_string(number) + " lines; at most " + std::to_string(most));
    }
  }

  [[nodiscard]] int breaches() const { return breaches_; }

 private:
  using Rule = std::pair<const std::string, Folder>;

  static std::map<std::string, Folder>::const_iterator rule_of(const std::string& path) {
    auto best = kFolders.end();
    for (auto it = kFolders.begin(); it != kFolders.end(); ++it) {
      if (inside(path, it->first) && (best == kFolders.end() || it->first > best->first)) best = it;
    }
    return best;
  }

  void line_of(const Rule& rule, const std::string& path, const std::string& where,
               const std::string& line) {
    const auto& [folder, allowed] = rule;
    if (line.rfind("#include \"", 0) == 0) {
      const std::string to = line.substr(10, line.find('"', 10) - 10);
      const bool ok = inside(to, folder) || std::ranges::any_of(allowed.below, [&](const auto& b) {
                        return inside(to, b);
                      });
      if (!ok) breach(where, std::string(folder).append(" may not include ").append(to));
    }
    if (line.rfind("#include <", 0) == 0) {
      const std::string to = line.substr(10, line.find('>', 10) - 10);
      const bool header = path.ends_with(".h") && folder != "tests";
      if (!standard(to) && (header || !starts_with_any(to, allowed.vendor))) {
        breach(where, (header ? "a header may not include <" : "may not include <") + to + ">");
      }
    }
    if (line.rfind("#if", 0) == 0 && !kConditional.contains(path)) {
      breach(where, "conditional compilation outside core/base/build.h and core/cuda/launch.cuh");
    }
    if (folder != "tests" && folder != "launch" && !kMayEnd.contains(path))
      check_quiet(where, line);
    for (const std::string& name : kSubranges) {
      if (path != "tests/policy/policy_test.cpp" && line.find(name) != std::string::npos) {
        breach(where, name + " does not compile with Clang 14: take the algorithm of iterators");
      }
    }
    if (std::ranges::any_of(line, [](char c) { return static_cast<signed char>(c) < 0; })) {
      breach(where, "not ASCII");
    }
    for (const std::string& word : kForbidden) {
      if (path != "tests/policy/policy_test.cpp" && line.find(word) != std::string::npos) {
        breach(where, "names " + word);
      }
    }
  }

  void check_quiet(const std::string& where, const std::string& line) {
    for (const char* call :
         {" exit(", "std::exit(", "std::cout", "std::cerr", "printf(", "abort()"}) {
      const size_t at = line.find(call);
      const size_t comment = line.find("//");
      const bool in_snprintf = at != std::string::npos && at >= 2 && line.substr(at - 2, 2) == "sn";
      if (at == std::string::npos || (comment != std::string::npos && comment < at)) continue;
      if (!in_snprintf) breach(where, std::string("libraries neither print nor exit: ") + call);
    }
  }

  void breach(const std::string& where, const std::string& what) {
    std::printf("%s: %s\n", where.c_str(), what.c_str());
    ++breaches_;
  }

  int breaches_ = 0;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int check_tree(const fs::path& root) {
  Checker checker;
  int files = 0;
  std::set<std::string> tops;
  for (const auto& [folder, rule] : kFolders) tops.insert(folder.substr(0, folder.find('/')));
  for (const std::string& top : tops) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string suffix = entry.path().extension();
      if (suffix != ".h" && suffix != ".cpp" && suffix != ".cu" && suffix != ".cuh") continue;
      ++files;
      checker.file(fs::relative(entry.path(), root).generic_string(), read(entry.path()));
    }
  }
  const std::set<std::string> allowed = {
      "CMakeLists.txt", "README.md", "LICENSE", "CMakePresets.json", "core",  "parallel",
      "data",           "runtime",   "launch",  "configs",           "tests", "monitoring",
      "build",          "runs"};
  int strangers = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (name.front() == '.' || allowed.contains(name)) continue;
    std::printf("%s: the top level is fixed\n", name.c_str());
    ++strangers;
  }
  std::printf("%d files, %d breaches\n", files, checker.breaches() + strangers);
  return checker.breaches() + strangers + (files == 0 ? 1 : 0);
}

// Each rule, broken once.
int check_planted() {
  const std::vector<std::pair<std::string, std::string>> planted = {
      {"core/base/x.cpp", "#include \"core/tensor/tensor.h\"\n"},
      {"core/ops/x.cpp", "#include \"runtime/trainer.h\"\n"},
      {"core/ops/x.h", "#include <oneapi/dnnl/dnnl.hpp>\n"},
      {"data/x.cpp", "#include <mpi.h>\n"},
      {"parallel/x.cpp", "#ifdef AB_WITH_CUDA\n"},
      {"core/ops/x.cu", "#ifdef AB_CUDA_SIM\n"},
      {"core/cuda/x.cuh", "#include \"core/tensor/tensor.h\"\n"},
      {"core/tensor/x.h", "#include <cuda_runtime.h>\n"},
      {"runtime/x.cpp", "  std::cout << 1;\n"},
      {"runtime/x.cpp", "  std::exit(1);\n"},
      {"core/base/x.h", std::string("// caf\xC3\xA9\n")},
      {"core/base/x.h", std::string(201, '\n')},
      {"core/base/x.cpp", std::string(401, '\n')},
      {"launch/x.cpp", "// see /work/x\n"},
      {"data/x.cpp", "  std::ranges::rotate(all, all.begin() + 1);\n"},
  };
  int missed = 0;
  for (const auto& [path, text] : planted) {
    Checker checker;
    checker.file(path, text);
    if (checker.breaches() == 1) continue;
    std::printf("not caught in %s: %s\n", path.c_str(), text.substr(0, 60).c_str());
    ++missed;
  }
  return missed;
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path root = argc > 1 ? argv[1] : ".";
  const bool planted = argc > 2 && std::strcmp(argv[2], "--planted") == 0;
  return (planted ? check_planted() : check_tree(root)) == 0 ? 0 : 1;
}
