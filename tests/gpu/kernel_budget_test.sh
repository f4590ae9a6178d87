#!/usr/bin/env bash
# Checks kernel_budget.sh without CUDA, on a table of its own and a cuobjdump that only says what a real one would:
# more registers, shared memory and stack, a new kernel and one that is gone are each told with both figures.
set -euo pipefail
cd "$(dirname "$0")"
temp=$(mktemp -d)
trap 'rm -r "$temp"' EXIT
mkdir -p "$temp/gpu" "$temp/bin" "$temp/build"
cp kernel_budget.sh cuobjdump.sh "$temp/gpu/"
touch "$temp/build/libanabranch_cuda.so"
echo "CMAKE_CUDA_COMPILER:FILEPATH=$temp/bin/nvcc" >"$temp/build/CMakeCache.txt"
printf '#!/usr/bin/env bash\necho "Cuda compilation tools, release 13.0, V${RELEASE:-13.0.88}"\n' >"$temp/bin/nvcc"
printf '#!/usr/bin/env bash\ncat "%s"\n' "$temp/usage" >"$temp/bin/cuobjdump"
chmod +x "$temp"/bin/*

# A kernel of each architecture: MANGLED REGISTERS SHARED STACK.
kernel() {
  local arch
  for arch in sm_80 sm_90; do
    printf 'arch = %s\nResource usage:\n Common:\n  GLOBAL:0\n Function %s:\n  REG:%d STACK:%d SHARED:%d LOCAL:0 CONSTANT[0]:360\n' \
      "$arch" "$1" "$2" "$4" "$3"
  done
}
update='_ZN9anabranch4cuda46_GLOBAL__N__a84fb87b_13_adamw_cuda_cu__Z1fPfPd13update_kernelIfEEvPT_'
exact='_ZN9anabranch4cuda46_GLOBAL__N__a84fb87b_13_adamw_cuda_cu__Z1fPfPd13update_kernelIdEEvPT_'
sums='_ZN9anabranch4cuda11sums_kernelILi4EEEvPf'

bad=0
# The check must end with $1 and have said $2.
run() {
  local code=0
  env PATH="$temp/bin:$PATH" "$temp/gpu/kernel_budget.sh" "$temp/build" ${3:+"$3"} >"$temp/said" 2>&1 || code=$?
  [ "$code" = "$1" ] || { echo "kernel_budget_test: ended with $code, not $1: $(cat "$temp/said")"; bad=1; }
  grep -qF -- "$2" "$temp/said" || { echo "kernel_budget_test: \"$2\" is not in: $(cat "$temp/said")"; bad=1; }
}
built() { cat >"$temp/usage"; }

{ kernel "$update" 24 64 0; kernel "$exact" 99 0 0; kernel "$sums" 16 0 8; } | built
run 1 'no table'
run 0 '2 kernels written' --update
grep -qx '    24     64     0    24     64     0  update_kernel<float>' "$temp/gpu/kernel_budget.txt" || {
  echo "kernel_budget_test: the table is: $(cat "$temp/gpu/kernel_budget.txt")"
  bad=1
}
run 0 '4 kernels, by architecture, within the table'
{ kernel "$update" 25 64 0; kernel "$sums" 16 0 8; } | built
run 1 'adamw_cuda.cu update_kernel<float> on sm_80 has 25 registers, the table 24'
{ kernel "$update" 24 65 0; kernel "$sums" 16 0 8; } | built
run 1 'adamw_cuda.cu update_kernel<float> on sm_90 has 65 bytes of shared memory, the table 64'
{ kernel "$update" 24 64 0; kernel "$sums" 16 0 16; } | built
run 1 'shared sums_kernel<4> on sm_90 has 16 bytes of stack, the table 8'
kernel "$update" 24 64 0 | built
run 1 'shared sums_kernel<4> on sm_80 is gone'
{ kernel "$update" 24 64 0; kernel "$sums" 16 0 8; kernel "${sums/ILi4E/ILi8E}" 16 0 8; } | built
run 1 'shared sums_kernel<8> on sm_80 is new: 16 registers'
{ kernel "$update" 20 64 0; kernel "$sums" 16 0 8; } | built
run 0 '2 need less than it says'
export RELEASE=13.1.2
run 0 'NOT CHECKED: the table is of nvcc 13.0.88, this build of 13.1.2'
exit "$bad"
