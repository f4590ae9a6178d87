// The program `anabranch`: picks one of the two builds of the library beside it and hands over.
//
// Linking the CUDA libraries costs every process a second and 200 MB, so they are behind dlopen:
// libanabranch_cuda.so is taken if it was built, a driver is there, and the processor was not
// chosen by ANABRANCH_DEVICE=cpu or an argument `device=cpu` (after --set). Otherwise
// libanabranch_cpu.so is. A configuration that asks for more than the chosen build has is refused
// by the library itself.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <climits>

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

// What the environment or the command line says of the device, or nothing.
std::string asked_device(int argc, char** argv) {
  std::string device;
  if (const char* variable = std::getenv("ANABRANCH_DEVICE")) device = variable;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string joined = "--set=device=";
    if (argument.rfind(joined, 0) == 0) device = argument.substr(joined.size());
    const bool follows_set = i > 1 && std::string(argv[i - 1]) == "--set";
    if (follows_set && argument.rfind("device=", 0) == 0) device = argument.substr(7);
  }
  return device;
}

bool has_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

// The library's entry, or null with dlerror()'s text in `why`.
Main* open_library(const std::string& path, std::string& why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = library != nullptr ? dlsym(library, "anabranch_main") : nullptr;
  if (entry == nullptr) why = dlerror();
  return reinterpret_cast<Main*>(entry);
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
  if (!device.empty() && device != "auto" && device != "cpu" && device != "cuda") {
    std::fprintf(stderr, "anabranch: error: device \"%s\", must be one of auto, cpu, cuda\n",
                 device.c_str());
    return kConfigFault;
  }
  const std::string cuda_library = own_folder() + "/libanabranch_cuda.so";
  std::string why;
  if (device != "cpu") {
    if (access(cuda_library.c_str(), F_OK) != 0) {
      why = "this build has no CUDA part (build with the preset cuda)";
    } else if (!has_driver()) {
      why = "no CUDA driver (libcuda.so.1) is installed";
    } else if (Main* entry = open_library(cuda_library, why)) {
      return entry(argc, argv);
    } else {
      std::fprintf(stderr, "anabranch: warning: %s; computing on the processor\n", why.c_str());
    }
    if (device == "cuda") {
      std::fprintf(stderr, "anabranch: error: device cuda was asked for: %s\n", why.c_str());
      return kConfigFault;
    }
  }
  if (Main* entry = open_library(own_folder() + "/libanabranch_cpu.so", why)) {
    return entry(argc, argv);
  }
  std::fprintf(stderr, "anabranch: error: %s; build it again\n", why.c_str());
  return kInternalFault;
}
