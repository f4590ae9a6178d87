// What this build was compiled with, and the compiler's own words. The only file that may look
// at a build macro: everywhere else writes `if constexpr (build::kCuda)`.
#pragma once

namespace anabranch::build {

#ifdef AB_WITH_CUDA
inline constexpr bool kCuda = true;
#else
inline constexpr bool kCuda = false;
#endif

#ifdef AB_WITHOUT_CLONES
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace anabranch::build

// Compiles a function for several CPUs; the right one is taken when the program starts. A kernel
// so marked is plain C++ that the compiler vectorises. Helpers it calls must be inlined into it.
#if defined(AB_WITHOUT_CLONES) || !defined(__x86_64__) || defined(__clang__)
#define AB_CLONES
#else
#define AB_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif
