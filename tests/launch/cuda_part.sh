#!/usr/bin/env bash
# Checks the program's part with CUDA where no GPU need be: that it is whole, loads, and is left out where it is of no
# use.
#
#   tests/launch/cuda_part.sh FOLDER   of a build with the preset cuda
set -euo pipefail
folder=$(realpath "${1:?usage: tests/launch/cuda_part.sh FOLDER}")
program=$folder/anabranch part=$folder/libanabranch_cuda.so
temp=$(mktemp -d)
trap 'rm -r "$temp"' EXIT

bad=0
fault() {
  echo "cuda part: $1"
  bad=1
}
# Runs the program with the words given; its output is $out, what it says of itself $err.
run() {
  code=0
  "$@" >"$temp/out" 2>"$temp/err" || code=$?
  out=$(<"$temp/out") err=$(<"$temp/err")
}

# Whole: nothing is undefined, code for every architecture is in it, and the CPU's part needs none of its libraries.
loads=$(ldd -r "$part" 2>&1)
if grep -E 'undefined symbol|not found' <<<"$loads"; then fault "$part does not load"; fi
if ldd "$program" "$folder/libanabranch_cpu.so" | grep -E 'lib(cuda|cudart|cublas|cublasLt|nccl)\.'; then
  fault "processes on the processor load CUDA's libraries"
fi
if readelf --dynamic --wide "$part" | grep -E 'NEEDED.*libnccl'; then fault "$part does not load without NCCL"; fi
sections=$(readelf --sections --wide "$part")
[[ $sections == *.nv_fatbin* ]] || fault "no kernels are in $part"
gpu=$(dirname "$0")/../gpu
if cuobjdump=$("$gpu/cuobjdump.sh"); then
  kernels=$("$cuobjdump" --list-elf --list-ptx "$part")
  for code in sm_80.cubin sm_90.cubin sm_90.ptx; do
    grep -q "$code" <<<"$kernels" || fault "no code for $code"
  done
fi

"$gpu/kernel_budget.sh" "$folder" || fault "kernels grew, are new or are gone: see above"

# With a driver in name alone the part is loaded, finds no GPU, and says so.
mkdir "$temp/driver"
cc -shared -o "$temp/driver/libcuda.so.1" -x c /dev/null
run env LD_LIBRARY_PATH="$temp/driver" "$program" doctor --dir "$temp"
grep -q ', with CUDA' <<<"$out" || fault "with a driver the part with CUDA is not loaded: $out$err"
grep -q 'gpus: none: CUDA finds no GPU: cudaError' <<<"$out" || fault "no reason why there is no GPU: $out"
grep -qE 'metrics port: .*(is free|in use)' <<<"$out" || fault "with CUDA loaded the metrics' server does not start: $out"
run env LD_LIBRARY_PATH="$temp/driver" "$program" config keys
[ "$code" = 0 ] && [ "$err" = "" ] || fault "config keys with a driver: $code $err"

# With no driver one line says so, and what asks for a GPU is refused.
if PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep -q 'libcuda\.so\.1'; then
  echo "a driver is installed here: not checked how the program falls back"
else
  run "$program" doctor --dir "$temp"
  [ "$err" = "anabranch: note: computing on the processor: no CUDA driver (libcuda.so.1) is installed" ] ||
    fault "the line of falling back is: $err"
  grep -q 'gpus: none: no CUDA driver' <<<"$out" || fault "doctor does not say why: $out"
  run "$program" bench step "$(dirname "$0")/../../configs/gpt2-2core.yaml" --set device=cuda
  [ "$code" = 78 ] && grep -q 'no CUDA driver' <<<"$err" || fault "device=cuda ended $code: $err"
  run "$program" eval "$temp" --device cuda
  [ "$code" = 78 ] && grep -q 'no CUDA driver' <<<"$err" || fault "eval --device cuda ended $code: $err"
  printf 'device: cuda\nmodel: {preset: gpt2-2core}\ntrain: {batch_tokens: 512}\n' >"$temp/gpu.yaml"
  run "$program" bench step "$temp/gpu.yaml"
  [ "$code" = 78 ] && grep -q 'device is cuda, but no CUDA driver' <<<"$err" || fault "device: cuda ended $code: $err"
fi
[ "$bad" = 0 ] && echo "cuda part: whole, loads, falls back"
exit "$bad"
