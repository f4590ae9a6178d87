# What we link, found once; see the table that configure prints.

find_package(Threads REQUIRED)
if(AB_LOOPS STREQUAL "openmp")
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
# The C interface from C++: else mpi.h pulls in the C++ bindings, which need -lmpi_cxx.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(yaml-cpp REQUIRED CONFIG)
find_package(prometheus-cpp REQUIRED CONFIG)
find_package(civetweb REQUIRED CONFIG)
find_package(dnnl REQUIRED CONFIG)  # its config asks for OpenCL: ocl-icd-opencl-dev
find_package(nlohmann_json REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(fmt REQUIRED CONFIG)
find_package(spdlog REQUIRED CONFIG)
find_package(zstd REQUIRED CONFIG)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
find_package(Parquet QUIET CONFIG)  # optional: Arrow C++ is not in Debian 12

if(AB_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know nvcc's C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  find_package(CUDAToolkit 13 REQUIRED)
  # Headers of the system, beside CUDA, or as Python's package nvidia-nccl-cu13 has them. Optional:
  # one rank needs none. The library is looked for when the program runs (nccl_library.cpp).
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT}/include ${CUDAToolkit_INCLUDE_DIRS})
endif()

# Third-party headers are not ours to warn about.
foreach(target IN ITEMS prometheus-cpp::core civetweb::civetweb spdlog::spdlog CLI11::CLI11)
  get_target_property(include_dirs ${target} INTERFACE_INCLUDE_DIRECTORIES)
  if(include_dirs)
    set_target_properties(${target} PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
                                               "${include_dirs}")
  endif()
endforeach()

message(STATUS "anabranch: build ${CMAKE_BUILD_TYPE}, sanitizers '${AB_SANITIZE}', loops ${AB_LOOPS}")
message(STATUS "  MPI      ${MPI_CXX_VERSION}   HDF5 ${HDF5_VERSION}   oneDNN ${dnnl_VERSION}")
message(STATUS "  CUDA     ${AB_CUDA}")
if(AB_CUDA)
  message(STATUS "  NCCL     ${NCCL_INCLUDE_DIR}")
endif()
