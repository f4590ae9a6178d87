// The program `anabranch`: picks one of the two builds of the library beside it and hands over.
//
// Linking the CUDA libraries costs every process a second and 200 MB, so they are behind dlopen:
// libanabranch_cuda.so is taken if it was built, a driver is there, and the processor was not
// chosen by ANABRANCH_DEVICE=cpu or an argument: `device=cpu` after --set, `cpu` after --device.
// Otherwise libanabranch_cpu.so is. Verbs that compute nothing never pay for CUDA. A configuration
// that asks for more than the chosen build has is refused by the library itself, which is told why
// there is no CUDA in it, and whether a GPU is demanded.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <climits>

#include "launch/cuda_part.h"

namespace {

using Main = int(int, char**);

constexpr int kConfigFault = 78;
constexpr int kInternalFault = 70;

std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return ".";
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

bool is_device(const std::string& word) {
  return word == "auto" || word == "cpu" || word == "cuda";
}

// What the environment or the command line says of the device, or nothing.
std::string asked_device(int argc, char** argv) {
  std::string device;
  if (const char* variable = std::getenv("ANABRANCH_DEVICE")) device = variable;
  for (int i = 1; i < argc; ++i) {
    const std::string one = argv[i], two = std::string(argv[i - 1]) + "=" + one;
    for (const std::string& argument : {one, two}) {
      const std::string set = "--set=device=", option = "--device=";
      if (argument.rfind(set, 0) == 0) device = argument.substr(set.size());
      // Another word the verb itself refuses, as it does of every option.
      const bool known =
          argument.rfind(option, 0) == 0 && is_device(argument.substr(option.size()));
      if (known) device = argument.substr(option.size());
    }
  }
  return device;
}

// Whether the verb computes on tensors, or tells about the GPUs. With --help it does neither.
bool wants_gpus(int argc, char** argv) {
  bool wants = false;
  for (const char* verb : {"train", "eval", "generate", "score", "bench", "doctor"}) {
    wants = wants || (argc > 1 && std::string(argv[1]) == verb);
  }
  for (int i = 1; i < argc; ++i) wants = wants && std::string(argv[i]) != "--help";
  return wants;
}

// It looks at what is amiss itself.
bool is_doctor(int argc, char** argv) { return argc > 1 && std::string(argv[1]) == "doctor"; }

// Of several processes of a job, the one that speaks.
bool is_first_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  }
  return true;
}

// Whether the driver is there and loads; else the reason in `why`.
bool has_driver(std::string& why) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) {
    dlclose(driver);
    return true;
  }
  const std::string said = dlerror();
  const bool absent =
      said.rfind("libcuda.so.1: ", 0) == 0 && said.find("No such file") != std::string::npos;
  why = absent ? "no CUDA driver (libcuda.so.1) is installed"
               : "the CUDA driver does not load: " + said;
  return false;
}

// The library's entry, or null with dlerror()'s text in `why`.
Main* open_library(const std::string& path, std::string& why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = library != nullptr ? dlsym(library, "anabranch_main") : nullptr;
  if (entry == nullptr) why = dlerror();
  return reinterpret_cast<Main*>(entry);
}

std::string cuda_library() { return own_folder() + "/libanabranch_cuda.so"; }

bool has_cuda_part() { return access(cuda_library().c_str(), F_OK) == 0; }

// The entry of the library with CUDA, or null with the reason in `why`.
Main* open_cuda_part(std::string& why) {
  if (!has_cuda_part()) {
    why = "this build has no CUDA part (build with the preset cuda)";
    return nullptr;
  }
  if (!has_driver(why)) return nullptr;
  return open_library(cuda_library(), why);
}

// Standard streams that whoever started us has closed: their numbers would go to the next files
// opened, and what is printed into those.
void open_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  // Threads that wait for the next loop spin for microseconds, not milliseconds, before they sleep:
  // on shared cores the spinning would cost more than it saves. Read when the library is loaded.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "10000", 0);
  const std::string device = asked_device(argc, argv);
  if (!device.empty() && !is_device(device)) {
    std::fprintf(stderr, "anabranch: error: device \"%s\", must be one of auto, cpu, cuda\n",
                 device.c_str());
    return kConfigFault;
  }
  unsetenv(anabranch::kWhyNoCuda);
  unsetenv(anabranch::kGpuDemanded);
  if (device == "cuda") setenv(anabranch::kGpuDemanded, "yes", 1);
  const bool wanted = device == "cuda" || (device != "cpu" && wants_gpus(argc, argv));
  std::string why = "the processor was asked for";
  if (wanted) {
    if (Main* entry = open_cuda_part(why)) return entry(argc, argv);
    if (device == "cuda" && !is_doctor(argc, argv)) {
      std::fprintf(stderr, "anabranch: error: device cuda was asked for: %s\n", why.c_str());
      return kConfigFault;
    }
    if (has_cuda_part() && is_first_rank()) {
      std::fprintf(stderr, "anabranch: note: computing on the processor: %s\n", why.c_str());
    }
  }
  setenv(anabranch::kWhyNoCuda, why.c_str(), 1);
  if (Main* entry = open_library(own_folder() + "/libanabranch_cpu.so", why)) {
    return entry(argc, argv);
  }
  std::fprintf(stderr, "anabranch: error: %s; build it again\n", why.c_str());
  return kInternalFault;
}
