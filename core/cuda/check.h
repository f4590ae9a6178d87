// Errors of the CUDA runtime as exceptions.
#pragma once

namespace anabranch::cuda {

// Throws Error if `error`, a cudaError_t, is not cudaSuccess: names it and the `call` that gave it.
void check(int error, const char* call);

}  // namespace anabranch::cuda
